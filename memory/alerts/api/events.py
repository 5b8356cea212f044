"""`/v1/events/` and `/v1/users/{user_id}/events/`: what happens to alerts and entries, in order."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet, prefetch_related_objects
from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts import alert_events, entry_events
from memory.alerts.api.alert_serializers import AlertFeedSerializer
from memory.alerts.api.alerts import AlertFilter, select_shown
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, found_by
from memory.kernel.http import waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.filters import StrictView
from memory.kernel.http.user_scope import UserScopedView

AFTER = OpenApiParameter(
    "after",
    {"type": "string", "pattern": "^(now|[0-9]{1,9})?$", "format": "feed-number"},
    description="Return the events after this event number in the workspace's feed: 0 for all"
    " events, `now` (default) for future events only, otherwise the `next` value from the last"
    " response.",
)
WAIT = OpenApiParameter("wait", waiting.SECONDS, description="Seconds to wait for an event.")


class EventFilter(AlertFilter):
    """Filters for the events of alerts."""

    def by_constraint(self, alerts: QuerySet[Alert], _: str, path: str) -> QuerySet[Alert]:
        """Select the alerts that the constraint `path` has ever raised."""
        return alerts.filter(found_by(path, ever=True))


@extend_schema_view(
    get=extend_schema(
        parameters=[AFTER, WAIT],
        responses=forced_singular_serializer(AlertFeedSerializer),  # type: ignore[no-untyped-call]
    )
)
class Events(StrictView, generics.ListAPIView[Alert]):
    """List the events in the workspace after an event number, or wait for the next ones.

    Without filters, events about entries that were rejected or had values set aside are included.
    """

    certain_users = True
    queryset = Alert.objects.none()
    filterset_class = EventFilter
    list_parameters = ("after", "wait")
    pagination_class = None

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of the feed."""
        alerts = self.get_queryset()  # comes first, since a missing user must cause a 404
        workspace = principal_of(request).workspace
        page, waited = alert_events.wait_for(
            workspace,
            _after(request, alert_events.newest(workspace)),
            self.filter_queryset(alerts),
            None if self.has_filter() else alert_events.select_entry_events(self.reach()),
            waiting.seconds(request, default=0),
        )
        answer = {
            "results": _news(alerts, page.events),
            "rejected": _entries(page.events, AlertEventKind.REJECTED),
            "set_aside": _entries(page.events, AlertEventKind.SET_ASIDE),
            "next": page.next,
            "waited": waited,
        }
        return Response(AlertFeedSerializer(answer).data)

    def has_filter(self) -> bool:
        """Return whether the request filters the alerts."""
        return bool(self.request.query_params.keys() & self.filterset_class.base_filters.keys())

    def reach(self) -> Q:
        """Return a condition that selects the users whose entries the feed includes."""
        return principal_of(self.request).reach("user")

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts in the caller's workspace, including erased users'."""
        return select_shown(Alert.objects.listed().filter(principal_of(self.request).reach("user")))


class UserEvents(UserScopedView, Events):
    """List the events of one user after an event number, or wait for the next ones.

    Without filters, events about the user's entries are included.
    """

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the user's alerts."""
        return select_shown(Alert.objects.listed().filter(user=self.memory_user()))

    def reach(self) -> Q:
        """Return a condition that selects only the user in the URL."""
        return super().reach() & Q(user__user_id=self.kwargs["user_id"])


def _after(request: Request, newest: int) -> int:
    """Parse `?after=`; raises ValidationError unless it is `now` or a valid event number."""
    try:
        return alert_events.number(request.query_params.get("after", "now"), newest)
    except ValueError as error:
        raise ValidationError({"after": [str(error)]}) from None


def _news(alerts: QuerySet[Alert], events: Sequence[AlertEvent]) -> list[Alert]:
    """Return these events' alerts in their current state, ordered by their newest event."""
    by_alert: dict[Any, list[AlertEvent]] = {}
    for event in (event for event in events if event.alert_id is not None):
        by_alert[event.alert_id] = [*by_alert.pop(event.alert_id, ()), event]
    rows = alerts.in_bulk(by_alert)
    for key, alert in rows.items():
        alert.news = by_alert[key]  # type: ignore[attr-defined]
    return [rows[key] for key in by_alert if key in rows]


def _entries(events: Sequence[AlertEvent], kind: AlertEventKind) -> list[dict[str, Any]]:
    """Return descriptions of the events of this kind, which report entries."""
    reports = [event for event in events if event.kind == kind]
    named = entry_events.named_by(reports)
    prefetch_related_objects(reports, "user")
    return [
        {
            "seq": event.seq,
            "at": event.at,
            "user_id": event.person.user_id,
            **entry_events.describe(event, named[event.pk]),
        }
        for event in reports
    ]
