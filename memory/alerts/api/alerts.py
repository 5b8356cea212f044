"""`/v1/alerts/` and `/v1/users/{user_id}/alerts/`: alert lists, and the event feed."""

from collections.abc import Callable, Sequence
from typing import Any

import django_filters
from django.db.models import Q, QuerySet, prefetch_related_objects
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

from memory.alerts import alert_events, entry_events
from memory.alerts.api.alert_serializers import (
    AlertDetailSerializer,
    AlertFeedSerializer,
    AlertPageSerializer,
    AlertSerializer,
    AlertThenSerializer,
)
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, found_by
from memory.kernel import instants
from memory.kernel.http import waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Incompatible
from memory.kernel.http.filters import PAGING, StrictView
from memory.kernel.http.user_scope import UserScopedView

# Parameters that the alert list accepts but the event feed does not.
LIST_ONLY = (*PAGING, "as_of")
OPEN_THEN = OpenApiParameter(
    "as_of",
    {"type": "string", "format": "day-or-moment"},
    description="Return the alerts that were unresolved at a point in time (2026-03-01T09:00,"
    " interpreted in the user's time zone unless it has a UTC offset) or at the end of a day"
    " (2026-03-01), in their current form, each with `state_then`. For a whole workspace, a day or"
    " a time without a UTC offset is interpreted in the workspace's time zone.",
)
AFTER = OpenApiParameter(
    "after",
    str,
    description="Return the events after this event number in the workspace's feed: 0 for all"
    " events, `now` for future events only, otherwise the `next` value from the last response.",
)
FEED_WAIT = OpenApiParameter(
    "wait", float, description="Seconds to wait for an event; requires `after`."
)
FEED = extend_schema(
    parameters=[OPEN_THEN, AFTER, FEED_WAIT],
    responses=PolymorphicProxySerializer(
        component_name="AlertsOrFeed",
        serializers=[AlertPageSerializer, AlertFeedSerializer],
        resource_type_field_name=None,
        many=False,
    ),
)


class AlertFilter(django_filters.FilterSet):
    """Filters for alert lists."""

    constraint = django_filters.CharFilter(
        method="by_constraint", label="Only alerts raised by the constraint with this path."
    )

    def by_constraint(self, found: QuerySet[Alert], _: str, path: str) -> QuerySet[Alert]:
        """Select the alerts that constraint `path` raises or, for the feed, has ever raised."""
        ever = "after" in (self.data or {})
        return found.filter(found_by(path, ever=ever))

    class Meta:
        model = Alert
        fields = ["state", "severity", "kind", "constraint"]


@extend_schema_view(get=FEED)
class AlertList(StrictView, generics.ListAPIView[Alert]):
    """List the workspace's alerts, newest first; with `after`, the events after that event number.

    The filters apply to alerts and to events alike. With `after` and no filters, events about
    entries that were rejected or had values set aside are included.
    """

    certain_users = True
    queryset = Alert.objects.none()
    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    list_parameters = (*LIST_ONLY, "after", "wait")
    ordering = ["-opened_at", "id"]

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of alerts, or of the feed."""
        asked = request.query_params
        if not {"after", "wait"} & asked.keys():
            return super().list(request, *args, **kwargs)
        found = self.get_queryset()  # comes first, since a missing user must cause a 404
        if "after" not in asked:
            raise Incompatible("wait", "`wait` requires `after`, such as `after=now&wait=25`.")
        for name in LIST_ONLY:
            if name in asked:
                raise Incompatible(
                    name, f"`after` cannot be combined with `{name}`: omit one of them."
                )
        workspace = principal_of(request).workspace
        page, waited = alert_events.wait_for(
            workspace,
            _after(request, alert_events.newest(workspace)),
            self.filter_queryset(found),
            None if self.has_filter() else alert_events.select_entry_events(self.reach()),
            waiting.seconds(request, default=0),
        )
        answer = {
            "results": _news(found, page.events),
            "rejected": _entries(page.events, AlertEventKind.REJECTED),
            "set_aside": _entries(page.events, AlertEventKind.SET_ASIDE),
            "next": page.next,
            "waited": waited,
        }
        return Response(AlertFeedSerializer(answer).data)

    def has_filter(self) -> bool:
        """Return whether the request filters the alerts."""
        asked = self.request.query_params
        return any(asked.get(name) for name in self.filterset_class.base_filters)

    def reach(self) -> Q:
        """Return a condition that selects the users whose entries the feed includes."""
        return principal_of(self.request).reach("user")

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts in the caller's workspace; for the feed, include erased users'."""
        found = _visible(self, erased="after" in self.request.query_params)
        return self.live_then(found, lambda: principal_of(self.request).workspace.time_zone)

    def live_then(self, found: QuerySet[Alert], zone: Callable[[], str]) -> QuerySet[Alert]:
        """If the request has `as_of`, select only the alerts that were live at that time."""
        if "as_of" not in self.request.query_params:
            return found
        try:
            moment = instants.span_in(zone(), self.request.query_params["as_of"]).last
        except instants.BadMoment as error:
            raise ValidationError({"as_of": [str(error)]}) from None
        return alert_events.live_at(found, moment)

    def get_serializer_class(self) -> type[serializers.Serializer[Any]]:
        """Return the serializer for current alerts or, with `as_of`, for past ones."""
        if "as_of" in self.request.query_params:
            return AlertThenSerializer
        return AlertSerializer


class UserAlertList(UserScopedView, AlertList):
    """List one user's alerts, newest first; with `after`, the events after that event number.

    With `after` and no filters, events about the user's entries are included.
    """

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the user's alerts."""
        user = self.memory_user()
        return self.live_then(
            with_run(Alert.objects.listed().filter(user=user)), lambda: user.time_zone
        )

    def reach(self) -> Q:
        """Return a condition that selects only the user in the URL."""
        return super().reach() & Q(user__user_id=self.kwargs["user_id"])


class OneAlert(StrictView, generics.RetrieveAPIView[Alert]):
    """Return one alert with its history."""

    certain_users = True
    queryset = Alert.objects.none()
    serializer_class = AlertDetailSerializer
    lookup_url_kwarg = "alert_id"

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts in the caller's workspace."""
        return _visible(self).prefetch_related("events", "feedback")


def _after(request: Request, newest: int) -> int:
    """Parse `?after=`; raises ValidationError unless it is `now` or a valid event number."""
    try:
        return alert_events.number(request.query_params["after"], newest)
    except ValueError as error:
        raise ValidationError({"after": [str(error)]}) from None


def _news(found: QuerySet[Alert], events: Sequence[AlertEvent]) -> list[Alert]:
    """Return these events' alerts in their current state, ordered by their newest event."""
    by_alert: dict[Any, list[AlertEvent]] = {}
    for event in (event for event in events if event.alert_id is not None):
        by_alert[event.alert_id] = [*by_alert.pop(event.alert_id, ()), event]
    alerts = found.in_bulk(by_alert)
    for key, alert in alerts.items():
        alert.news = by_alert[key]  # type: ignore[attr-defined]
    return [alerts[key] for key in by_alert if key in alerts]


def _entries(events: Sequence[AlertEvent], kind: AlertEventKind) -> list[dict[str, Any]]:
    """Return descriptions of the events of this kind, which report entries."""
    found = [event for event in events if event.kind == kind]
    named = entry_events.named_by(found)
    prefetch_related_objects(found, "user")
    return [
        {
            "seq": event.seq,
            "at": event.at,
            "user_id": event.person.user_id,
            **entry_events.describe(event, named[event.pk]),
        }
        for event in found
    ]


def _visible(view: generics.GenericAPIView[Alert], *, erased: bool = False) -> QuerySet[Alert]:
    found = Alert.objects.listed().filter(principal_of(view.request).reach("user"))
    return with_run(found if erased else found.filter(user__erased_at=None))


def with_run(found: QuerySet[Alert]) -> QuerySet[Alert]:
    """Also load the users, last runs and duplicates that a response shows."""
    return (
        found.select_related("user", "last_run")
        .defer("user__metadata", "last_run__input", "last_run__output", "last_run__stdout")
        .prefetch_related("duplicates")
    )
