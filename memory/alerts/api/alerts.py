"""`/v1/alerts/`, `/v1/users/{user_id}/alerts/`: alerts, and actions on an alert."""

from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts import alert_actions, alert_events, feedback
from memory.alerts.api.alert_serializers import (
    AlertDetailSerializer,
    AlertSerializer,
    AlertThenSerializer,
    GiveFeedbackSerializer,
    NoteSerializer,
    ReasonSerializer,
    SnoozeSerializer,
)
from memory.alerts.models.alerts import Alert, Judge, Verdict, found_by
from memory.kernel import instants
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.filters import PAGING, StrictView
from memory.kernel.http.serializers import validated
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.large import defer_large

OPEN_THEN = OpenApiParameter(
    "as_of",
    {"type": "string", "format": "day-or-moment"},
    description="Return the alerts that were unresolved at a point in time (2026-03-01T09:00,"
    " interpreted in the user's time zone unless it has a UTC offset) or at the end of a day"
    " (2026-03-01), in their current form, each with `state_then`. For a whole workspace, a day or"
    " a time without a UTC offset is interpreted in the workspace's time zone.",
)


class AlertFilter(django_filters.FilterSet):
    """Filters for alerts."""

    constraint = django_filters.CharFilter(
        method="by_constraint", label="Only alerts raised by the constraint with this path."
    )

    def by_constraint(self, alerts: QuerySet[Alert], _: str, path: str) -> QuerySet[Alert]:
        """Select the alerts that the constraint `path` raises."""
        return alerts.filter(found_by(path))

    class Meta:
        model = Alert
        fields = ["state", "severity", "kind", "constraint"]


@extend_schema_view(
    list=extend_schema(parameters=[OPEN_THEN], responses=AlertThenSerializer(many=True)),
    retrieve=extend_schema(description="Return one alert with its history."),
)
class Alerts(StrictView, viewsets.ReadOnlyModelViewSet[Alert]):
    """List the workspace's alerts, newest first."""

    certain_users = True
    queryset = Alert.objects.none()
    lookup_url_kwarg = "alert_id"
    lookup_value_converter = "uuid"
    filterset_class = AlertFilter
    list_parameters = (*PAGING, "as_of")
    ordering = ["-opened_at", "id"]

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts in the caller's workspace."""
        reach = principal_of(self.request).reach("user")
        alerts = select_shown(Alert.objects.listed().filter(reach, user__erased_at=None))
        if self.action == "list":
            return live_then(self.request, alerts, principal_of(self.request).workspace.time_zone)
        return alerts.prefetch_related("events", "feedback")

    def get_serializer_class(self) -> type[serializers.Serializer[Any]]:
        """Return the serializer for one alert, or for current or past alerts."""
        if self.action != "list":
            return AlertDetailSerializer
        return AlertThenSerializer if "as_of" in self.request.query_params else AlertSerializer

    @operations.write({200: AlertDetailSerializer}, request=NoteSerializer)
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, alert_id: str) -> Response:
        """Acknowledge the alert; 409 if it is resolved."""
        return self.change(alert_actions.acknowledge, validated(NoteSerializer, request.data))

    @operations.write({200: AlertDetailSerializer}, request=SnoozeSerializer)
    @action(detail=True, methods=["post"])
    def snooze(self, request: Request, alert_id: str) -> Response:
        """Snooze the alert until a given time, or until it changes; 409 if it is resolved."""
        with timezone.override(ZoneInfo(self.get_object().user.time_zone)):
            fields = validated(SnoozeSerializer, request.data)
        return self.change(alert_actions.snooze, {"until": None, **fields})

    @operations.write({200: AlertDetailSerializer}, request=NoteSerializer)
    @action(detail=True, methods=["post"])
    def reopen(self, request: Request, alert_id: str) -> Response:
        """Undo an acknowledgement, a snooze, or a manual resolution.

        409 if the alert is already open, or if its finding no longer exists.
        """
        return self.change(alert_actions.reopen, validated(NoteSerializer, request.data))

    @operations.write({200: AlertDetailSerializer}, request=GiveFeedbackSerializer)
    @action(detail=True, methods=["post"])
    def feedback(self, request: Request, alert_id: str) -> Response:
        """Mark the alert as useful or wrong, whether it is live or resolved.

        The product gives one verdict per alert, and may change it. 409 if the alert reports that a
        constraint failed or was paused.
        """
        fields = validated(GiveFeedbackSerializer, request.data)
        given = {**fields, "verdict": Verdict(fields["verdict"]), "judge": Judge.PRODUCT}
        return self.change(feedback.give, given)

    @operations.write({200: AlertDetailSerializer}, request=ReasonSerializer)
    @action(detail=True, methods=["post"])
    def resolve(self, request: Request, alert_id: str) -> Response:
        """Resolve the alert; 409 if it is already resolved.

        No new alert is opened as long as the constraint's finding stays unchanged. To resolve an
        alert about a paused constraint, resume the constraint.
        """
        return self.change(alert_actions.resolve, validated(ReasonSerializer, request.data))

    def change(self, step: Callable[..., object], fields: Mapping[str, Any]) -> Response:
        """Apply `step` to the alert on the caller's behalf; return a response with the alert."""

        def write() -> Alert:
            alert = self.get_object()
            try:
                with as_conflict(alert_actions.AlertNotOpen, feedback.FeedbackRefused):
                    step(alert, actor=str(principal_of(self.request)), **fields)
            except alert_actions.SnoozeRefused as error:
                raise serializers.ValidationError({"until": [str(error)]}) from None
            return alert

        self.once(write)
        return Response(self.get_serializer(self.get_object()).data)


class UserAlerts(UserScopedView, Alerts):
    """List one user's alerts, newest first."""

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the user's alerts."""
        user = self.memory_user()
        alerts = select_shown(Alert.objects.listed().filter(user=user))
        return live_then(self.request, alerts, user.time_zone)


def live_then(request: Request, alerts: QuerySet[Alert], time_zone: str) -> QuerySet[Alert]:
    """If the request has `as_of`, select only the alerts that were live at that time."""
    if "as_of" not in request.query_params:
        return alerts
    try:
        moment = instants.span_in(time_zone, request.query_params["as_of"]).last
    except instants.BadMoment as error:
        raise ValidationError({"as_of": [str(error)]}) from None
    return alert_events.live_at(alerts, moment)


def select_shown(alerts: QuerySet[Alert]) -> QuerySet[Alert]:
    """Also load the users, last runs and duplicates that a response shows."""
    rows = defer_large(alerts, "user", "last_run", keep=Alert.LARGE)
    return rows.prefetch_related("duplicates")
