"""Serializers of alerts: their details, pages, and the feed; and of the bodies of actions."""

from typing import Any

from rest_framework import serializers

from memory.api.entry_serializers import RejectedSerializer
from memory.api.serializers import StrictSerializer
from memory.delivery import rejections
from memory.models import Alert, AlertEvent, AlertFeedback
from memory.models.alerts import LIVE_STATES, Verdict
from memory.models.runs import warning_of
from memory.texts import MAX_REASON


class AlertEventSerializer(serializers.ModelSerializer[AlertEvent]):
    """One step of an alert's life."""

    class Meta:
        model = AlertEvent
        fields = ["seq", "kind", "at", "actor", "run", "detail"]


class CauseSerializer(serializers.ModelSerializer[Alert]):
    """A constraint that finds what the alert tells, and its words for it."""

    class Meta:
        model = Alert
        fields = ["constraint", "message", "fingerprint"]


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """An alert with its evidence: the records, and the log entries that they rest on."""

    user_id = serializers.CharField(source="user.user_id")
    warning = serializers.SerializerMethodField(
        help_text="What to know of the sandbox that found it last, if anything."
    )
    causes = CauseSerializer(
        many=True,
        help_text="The constraints that find it: the alert's own first, then others that find the"
        " same of the same records. A live alert goes on until none of them finds it.",
    )

    class Meta:
        model = Alert
        fields = [
            "id",
            "user_id",
            "kind",
            "state",
            "severity",
            "message",
            "constraint",
            "causes",
            "fingerprint",
            "evidence",
            "entries",
            "opened_at",
            "changed_at",
            "resolved_at",
            "open_since",
            "snoozed_until",
            "escalated_at",
            "last_run",
            "warning",
        ]

    def get_warning(self, alert: Alert) -> str | None:
        """Return a warning for a sandbox that is for development."""
        return warning_of(alert.last_run.runner) if alert.last_run else None


class FeedbackSerializer(serializers.ModelSerializer[AlertFeedback]):
    """What one side thinks of an alert now."""

    class Meta:
        model = AlertFeedback
        fields = ["judge", "verdict", "note", "actor", "at"]


class AlertDetailSerializer(AlertSerializer):
    """An alert with its history."""

    events = AlertEventSerializer(many=True)
    feedback = FeedbackSerializer(many=True)

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "events", "feedback"]


class AlertNewsSerializer(AlertSerializer):
    """An alert as it is now, with what happened to it after some number of the feed."""

    events = AlertEventSerializer(many=True, source="news")

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "events"]


class AlertPageSerializer(serializers.Serializer[Any]):
    """A page of the list."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = AlertSerializer(many=True)


class RejectionSerializer(serializers.Serializer[Any]):
    """Entries of a user's log that were rejected together: an event of the feed."""

    seq = serializers.IntegerField(help_text="The number of the event in the feed.")
    at = serializers.DateTimeField()
    user_id = serializers.CharField()
    count = serializers.IntegerField(help_text="How many entries were rejected.")
    more = serializers.IntegerField(
        help_text=f"How many of them `entries` does not name: it has those of the first"
        f" {rejections.MAX_NAMED} that are still rejected."
    )
    entries = RejectedSerializer(many=True)


class AlertFeedSerializer(serializers.Serializer[Any]):
    """What happened after a number of the feed; alerts in the order of their newest events."""

    results = AlertNewsSerializer(many=True)
    rejected = RejectionSerializer(
        many=True,
        help_text="Entries that were rejected, in the order of the events; none where a filter"
        " narrows the alerts.",
    )
    next = serializers.IntegerField(help_text="What to send as `after` the next time.")
    waited = serializers.BooleanField(
        help_text="False where the server has too many waiting requests for one more: wait a while"
        " before you ask again."
    )


class AlertThenSerializer(AlertSerializer):
    """An alert as it is now, and in which state it was at the moment that was asked for."""

    state_then = serializers.ChoiceField(choices=LIVE_STATES)

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "state_then"]


class AlertThenPageSerializer(AlertPageSerializer):
    """A page of the list as of a moment."""

    results = AlertThenSerializer(many=True)


class NoteSerializer(StrictSerializer):
    """What is to be remembered with it."""

    note = serializers.CharField(
        required=False, default="", max_length=MAX_REASON, allow_blank=True
    )


class SnoozeSerializer(NoteSerializer):
    """Until when the alert is put off."""

    until = serializers.DateTimeField(
        required=False,
        help_text="A moment within a year, without an offset where the user lives; without it,"
        " until the severity changes, or the records that the alert rests on.",
    )


class GiveFeedbackSerializer(NoteSerializer):
    """What the product thinks of the alert; it replaces what it said before."""

    verdict = serializers.ChoiceField(choices=Verdict.choices)


class ReasonSerializer(StrictSerializer):
    """Why it is done."""

    reason = serializers.CharField(max_length=MAX_REASON)
