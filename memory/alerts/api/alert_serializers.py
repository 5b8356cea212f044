"""Serializers for alerts, alert pages, the event feed, and the bodies of alert actions."""

from typing import Any

from rest_framework import serializers

from memory.alerts import entry_events
from memory.alerts.models.alerts import LIVE_STATES, Alert, AlertEvent, AlertFeedback, Verdict
from memory.kernel.http.serializers import DayStartField, StrictSerializer
from memory.kernel.http.stored import AlertEventDetailField, EvidenceField, WarningField
from memory.kernel.texts import MAX_REASON
from memory.log.api.entry_serializers import RejectedSerializer, SetAsideSerializer


class AlertEventSerializer(serializers.ModelSerializer[AlertEvent]):
    """One event in the life of an alert."""

    detail = AlertEventDetailField()

    class Meta:
        model = AlertEvent
        fields = ["seq", "kind", "at", "actor", "run", "detail"]


class CauseSerializer(serializers.ModelSerializer[Alert]):
    """One of the constraints that raise an alert, with its own message."""

    class Meta:
        model = Alert
        fields = ["constraint", "message", "fingerprint"]


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """An alert with its evidence: records, and the log entries that they come from."""

    user_id = serializers.CharField(source="user.user_id")
    evidence = EvidenceField(
        help_text="The records that the alert is based on, each with the log entries behind it."
    )
    warning = WarningField(
        "A warning if the last run that raised the alert used a sandbox meant for"
        " development only; otherwise null.",
        source="last_run.runner",
    )
    causes = CauseSerializer(
        many=True,
        help_text="The constraints that raise the alert: `constraint` first, then other"
        " constraints that report the same finding about the same records. The alert stays live"
        " until none of these constraints raises it.",
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


class FeedbackSerializer(serializers.ModelSerializer[AlertFeedback]):
    """The feedback that the product or staff last gave on an alert."""

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
    """An alert in its current state, with its events numbered above `after`."""

    events = AlertEventSerializer(many=True, source="news")

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "events"]


class RejectionSerializer(serializers.Serializer[Any]):
    """A feed event that reports entries in a user's log that were rejected together."""

    seq = serializers.IntegerField(help_text="The event's number in the feed.")
    at = serializers.DateTimeField()
    user_id = serializers.CharField()
    count = serializers.IntegerField(help_text="The number of rejected entries.")
    more = serializers.IntegerField(
        help_text="The number of rejected entries that are not in `entries`, which lists the first"
        f" {entry_events.MAX_NAMED} that are still rejected."
    )
    entries = RejectedSerializer(many=True)


class SetAsideEventSerializer(RejectionSerializer):
    """A feed event that reports entries in a user's log with values that did not fit."""

    count = serializers.IntegerField(help_text="The number of entries with such values.")
    more = serializers.IntegerField(
        help_text="The number of these entries that are not in `entries`, which lists the first"
        f" {entry_events.MAX_NAMED}."
    )
    entries = SetAsideSerializer(many=True)  # type: ignore[assignment]


class AlertFeedSerializer(serializers.Serializer[Any]):
    """The feed's events numbered above `after`; alerts are ordered by their newest event."""

    results = AlertNewsSerializer(many=True)
    rejected = RejectionSerializer(
        many=True,
        help_text="Events that report rejected entries, in order; always empty if the request"
        " filters the alerts.",
    )
    set_aside = SetAsideEventSerializer(
        many=True,
        help_text="Events that report entries with values that did not fit their fields and were"
        " set aside, in order; always empty if the request filters the alerts.",
    )
    next = serializers.IntegerField(help_text="The `after` value for the next request.")
    waited = serializers.BooleanField(
        help_text="False if this request could not wait because too many other requests were"
        " waiting. In that case, pause before sending the next request."
    )


class AlertThenSerializer(AlertSerializer):
    """An alert in its current form, with its state at the requested point in time."""

    state_then = serializers.ChoiceField(
        choices=LIVE_STATES, required=False, help_text="Only with `as_of`."
    )

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "state_then"]


class NoteSerializer(StrictSerializer):
    """A note to store with the alert."""

    note = serializers.CharField(
        required=False, default="", max_length=MAX_REASON, allow_blank=True
    )


class SnoozeSerializer(NoteSerializer):
    """When the snooze ends, with an optional note."""

    rules = {"properties": {"until": {"format": "future-date-time"}}}

    until = DayStartField(
        required=False,
        help_text="The end of the snooze, within the next year; a day (2026-03-01) means its start,"
        " so that the alert is back on that day; a time without a UTC offset is"
        " interpreted in the user's time zone. If omitted, the alert is snoozed until its severity"
        " or evidence changes.",
    )


class GiveFeedbackSerializer(NoteSerializer):
    """The product's feedback on the alert, which replaces any earlier feedback."""

    verdict = serializers.ChoiceField(choices=Verdict.choices)


class ReasonSerializer(StrictSerializer):
    """The reason for an action on an alert or a paused constraint."""

    reason = serializers.CharField(max_length=MAX_REASON)
