"""`/v1/alerts/` and `/v1/users/{user_id}/alerts/`: the findings of constraints, and the feed."""

from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import django_filters
from django.db.models import Q, QuerySet, prefetch_related_objects
from django.utils import timezone
from drf_spectacular.utils import (
    OpenApiParameter,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_view,
)
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerting import alert_events, feedback, lifecycle
from memory.api import idempotency, waiting
from memory.api.authentication import principal_of
from memory.api.entries import RejectedSerializer
from memory.api.errors import Conflict, Incompatible
from memory.api.filters import PAGING
from memory.api.serializers import StrictSerializer
from memory.api.users import UserScopedView
from memory.delivery import rejections
from memory.models import Alert, AlertEvent, AlertFeedback
from memory.models.alerts import LIVE_STATES, Judge, Verdict, found_by
from memory.models.runs import warning_of
from memory.temporal import history
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


# Parameters of the list that the feed does not have.
LIST_ONLY = (*PAGING, "as_of")
OPEN_THEN = OpenApiParameter(
    "as_of",
    {"type": "string", "format": "day-or-moment"},
    description="Answer with the alerts that were not resolved at a moment (2026-03-01T09:00, where"
    " the user lives, or with an offset) or on a day (2026-03-01: its noon), as they are now, each"
    " with `state_then`. Of a whole workspace, a time without an offset is that of the workspace.",
)
AFTER = OpenApiParameter(
    "after",
    str,
    description="Answer with what happened after this number of the workspace's feed: 0 for all,"
    " `now` for what is to come, else the `next` of the last answer.",
)
FEED_WAIT = OpenApiParameter(
    "wait", float, description="With `after`: seconds to wait for something to happen."
)
FEED = extend_schema(
    parameters=[OPEN_THEN, AFTER, FEED_WAIT],
    responses=PolymorphicProxySerializer(
        component_name="AlertsOrFeed",
        serializers=[AlertPageSerializer, AlertThenPageSerializer, AlertFeedSerializer],
        resource_type_field_name=None,
        many=False,
    ),
)


class AlertFilter(django_filters.FilterSet):
    """The filters of alerts."""

    constraint = django_filters.CharFilter(
        method="by_constraint", label="The path of a constraint that finds it."
    )

    def by_constraint(self, found: QuerySet[Alert], _: str, path: str) -> QuerySet[Alert]:
        """Keep the alerts that this constraint causes, or, for the feed, has ever caused."""
        ever = "after" in (self.data or {})
        return found.filter(found_by(path, ever=ever))

    class Meta:
        model = Alert
        fields = ["state", "severity", "kind", "constraint"]


@extend_schema_view(get=FEED)
class AlertList(generics.ListAPIView[Alert]):
    """The alerts of the workspace, newest first; with `after`, what happened to them since then.

    The filters hold for both. With `after` and no filter, also which entries were rejected.
    """

    certain_users = True
    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    list_parameters = (*LIST_ONLY, "after", "wait")
    ordering = ["-opened_at", "id"]

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of the list, or of the feed."""
        asked = request.query_params
        if not {"after", "wait"} & asked.keys():
            return super().list(request, *args, **kwargs)
        found = self.get_queryset()  # first: a missing user causes 404 whatever else is wrong
        if "after" not in asked:
            raise Incompatible("wait", "Say after what, too: `after=now&wait=25`.")
        for name in LIST_ONLY:
            if name in asked:
                raise Incompatible(name, f"With `after` there is no {name}: leave out one of them.")
        workspace = principal_of(request).workspace
        page, waited = waiting.for_events(
            workspace,
            _after(request, alert_events.newest(workspace)),
            self.filter_queryset(found),
            None if self.has_filter() else alert_events.select_rejections(self.reach()),
            waiting.seconds(request, default=0),
        )
        answer = {
            "results": _news(found, page.events),
            "rejected": _rejected(page.events),
            "next": page.next,
            "waited": waited,
        }
        return Response(AlertFeedSerializer(answer).data)

    def has_filter(self) -> bool:
        """Tell whether the request filters the alerts."""
        asked = self.request.query_params
        return any(asked.get(name) for name in self.filterset_class.base_filters)

    def reach(self) -> Q:
        """Match the users whose rejected entries the feed includes."""
        return principal_of(self.request).reach("user")

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts of the caller's workspace; for the feed, also those of erased users."""
        found = _visible(self, erased="after" in self.request.query_params)
        return self.live_then(found, lambda: principal_of(self.request).workspace.time_zone)

    def live_then(self, found: QuerySet[Alert], zone: Callable[[], str]) -> QuerySet[Alert]:
        """Keep the alerts that were live at the requested moment, if there is one."""
        if "as_of" not in self.request.query_params:
            return found
        try:
            moment = history.instant_in(zone(), self.request.query_params["as_of"])
        except history.BadMoment as error:
            raise ValidationError({"as_of": [str(error)]}) from None
        return alert_events.live_at(found, moment)

    def get_serializer_class(self) -> type[serializers.Serializer[Any]]:
        """Return the serializer for the requested form."""
        if "as_of" in self.request.query_params:
            return AlertThenSerializer
        return AlertSerializer


class UserAlertList(UserScopedView, AlertList):
    """The alerts of one user, newest first; with `after`, what happened to them since then.

    With `after` and no filter, also which entries of the user were rejected.
    """

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the user's alerts."""
        if getattr(self, "swagger_fake_view", False):
            return Alert.objects.none()
        user = self.memory_user()
        return self.live_then(
            with_run(Alert.objects.listed().filter(user=user)), lambda: user.time_zone
        )

    def reach(self) -> Q:
        """Match only the user."""
        return super().reach() & Q(user__user_id=self.kwargs["user_id"])


class OneAlert(generics.RetrieveAPIView[Alert]):
    """One alert with its history."""

    certain_users = True
    serializer_class = AlertDetailSerializer
    lookup_url_kwarg = "alert_id"

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts of the caller's workspace."""
        return _visible(self).prefetch_related("events", "feedback")


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


class ChangedAlert(OneAlert):
    """An action on one alert."""

    http_method_names = ["post", "options"]

    def change(self, step: Callable[[Alert, str], object]) -> Response:
        """Apply an action to the alert on behalf of the caller, and return the alert."""

        def do() -> Alert:
            alert = self.get_object()
            try:
                step(alert, str(principal_of(self.request)))
            except (lifecycle.AlertNotOpen, feedback.FeedbackRefused) as error:
                raise Conflict(str(error)) from None
            except lifecycle.SnoozeRefused as error:
                raise serializers.ValidationError({"until": [str(error)]}) from None
            return alert

        written = idempotency.once(
            self.request,
            do,
            user_of=lambda alert: alert.user,
            refer=lambda alert: str(alert.pk),
            recall=lambda known: Alert.objects.get(pk=known.reference),
        )
        return Response(self.get_serializer(self.get_object()).data, headers=written.headers)


class Acknowledge(ChangedAlert):
    """Acknowledge an alert."""

    @extend_schema(
        request=NoteSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Acknowledge the alert; 409 if it is resolved."""
        body = NoteSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        note = body.validated_data["note"]
        return self.change(
            lambda alert, actor: lifecycle.acknowledge(alert, actor=actor, note=note)
        )


class Snooze(ChangedAlert):
    """Snooze an alert."""

    @extend_schema(
        request=SnoozeSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Snooze the alert until a moment, or until it changes; 409 if it is resolved."""
        body = SnoozeSerializer(data=request.data)
        with timezone.override(ZoneInfo(self.get_object().user.time_zone)):
            body.is_valid(raise_exception=True)
        until, note = body.validated_data.get("until"), body.validated_data["note"]
        return self.change(
            lambda alert, actor: lifecycle.snooze(alert, actor=actor, until=until, note=note)
        )


class Reopen(ChangedAlert):
    """Reopen an alert."""

    @extend_schema(
        request=NoteSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Take back an acknowledgement, a snooze, or a resolution by hand that still holds.

        409 if the alert is open, or what it told of is no longer found.
        """
        body = NoteSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        note = body.validated_data["note"]
        return self.change(lambda alert, actor: lifecycle.reopen(alert, actor=actor, note=note))


class Feedback(ChangedAlert):
    """Give feedback on an alert."""

    @extend_schema(
        request=GiveFeedbackSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Say that the alert was useful, or wrong, whether it is live or resolved.

        The product has one verdict, which may be changed. 409 for an alert about a constraint.
        """
        body = GiveFeedbackSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        verdict, note = Verdict(body.validated_data["verdict"]), body.validated_data["note"]
        return self.change(
            lambda alert, actor: feedback.give(
                alert, judge=Judge.PRODUCT, verdict=verdict, actor=actor, note=note
            )
        )


class Resolve(ChangedAlert):
    """Resolve an alert by hand."""

    @extend_schema(
        request=ReasonSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resolve the alert; 409 if it is resolved.

        While the constraint finds the same unchanged, it opens no new one. An alert that tells of a
        paused constraint is resolved by resuming it.
        """
        body = ReasonSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data["reason"]
        return self.change(
            lambda alert, actor: lifecycle.resolve(alert, actor=actor, reason=reason)
        )


def _after(request: Request, newest: int) -> int:
    """Parse `?after=`; raises ValidationError if it is no number of the feed."""
    try:
        return alert_events.number(request.query_params["after"], newest)
    except ValueError as error:
        raise ValidationError({"after": [str(error)]}) from None


def _news(found: QuerySet[Alert], events: Sequence[AlertEvent]) -> list[Alert]:
    """Return the current alerts of these events, in the order of their newest events."""
    by_alert: dict[Any, list[AlertEvent]] = {}
    for event in (event for event in events if event.alert_id is not None):
        by_alert[event.alert_id] = [*by_alert.pop(event.alert_id, ()), event]
    alerts = found.in_bulk(by_alert)
    for key, alert in alerts.items():
        alert.news = by_alert[key]  # type: ignore[attr-defined]
    return [alerts[key] for key in by_alert if key in alerts]


def _rejected(events: Sequence[AlertEvent]) -> list[dict[str, Any]]:
    """Return descriptions of those of these events that are about rejected entries."""
    named = rejections.named_by(events)
    found = [event for event in events if event.pk in named]
    prefetch_related_objects(found, "user")
    return [
        {
            "seq": event.seq,
            "at": event.at,
            "user_id": event.person.user_id,
            **rejections.describe(event, named[event.pk]),
        }
        for event in found
    ]


def _visible(view: generics.GenericAPIView[Alert], *, erased: bool = False) -> QuerySet[Alert]:
    if getattr(view, "swagger_fake_view", False):
        return Alert.objects.none()
    found = Alert.objects.listed().filter(principal_of(view.request).reach("user"))
    return with_run(found if erased else found.filter(user__erased_at=None))


def with_run(found: QuerySet[Alert]) -> QuerySet[Alert]:
    """Join the users, duplicates and last runs that a response contains."""
    return (
        found.select_related("user", "last_run")
        .defer("user__metadata", "last_run__input", "last_run__output", "last_run__stdout")
        .prefetch_related("duplicates")
    )
