"""`/v1/alerts/` and `/v1/users/{user_id}/alerts/`: what the constraints found."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory import alerts
from memory.api.errors import Conflict
from memory.api.serializers import StrictSerializer
from memory.api.users import UserScopedView, principal_of
from memory.models import Alert, AlertEvent
from memory.models.runs import warning_of


class AlertEventSerializer(serializers.ModelSerializer[AlertEvent]):
    """One step of an alert's life."""

    class Meta:
        model = AlertEvent
        fields = ["kind", "at", "actor", "run", "detail"]


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """An alert with its evidence: the records, and the log entries that they rest on."""

    user_id = serializers.CharField(source="user.user_id")
    warning = serializers.SerializerMethodField(
        help_text="What to know of the sandbox that found it last, if anything."
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
            "fingerprint",
            "evidence",
            "entries",
            "opened_at",
            "changed_at",
            "resolved_at",
            "last_run",
            "warning",
        ]

    def get_warning(self, alert: Alert) -> str | None:
        """Warn of a sandbox that is for development."""
        return warning_of(alert.last_run.runner) if alert.last_run else None


class AlertDetailSerializer(AlertSerializer):
    """An alert with its history."""

    events = AlertEventSerializer(many=True)

    class Meta(AlertSerializer.Meta):
        fields = [*AlertSerializer.Meta.fields, "events"]


class AlertFilter(django_filters.FilterSet):
    """How alerts can be narrowed."""

    class Meta:
        model = Alert
        fields = ["state", "severity", "kind", "constraint"]


class AlertList(generics.ListAPIView[Alert]):
    """The alerts of the workspace, newest first."""

    serializer_class = AlertSerializer
    filterset_class = AlertFilter
    ordering = ["-opened_at", "id"]

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts of the caller's workspace."""
        return _visible(self)


class UserAlertList(UserScopedView, AlertList):
    """The alerts of one user, newest first."""

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the user's alerts."""
        if getattr(self, "swagger_fake_view", False):
            return Alert.objects.none()
        return with_run(Alert.objects.filter(user=self.memory_user()))


class OneAlert(generics.RetrieveAPIView[Alert]):
    """One alert with its history."""

    serializer_class = AlertDetailSerializer
    lookup_url_kwarg = "alert_id"

    def get_queryset(self) -> QuerySet[Alert]:
        """Return the alerts of the caller's workspace."""
        return _visible(self).prefetch_related("events")


class AcknowledgeSerializer(StrictSerializer):
    """Why the alert is acknowledged."""

    note = serializers.CharField(required=False, default="", max_length=2000, allow_blank=True)


class ResolveSerializer(StrictSerializer):
    """Why the alert is closed."""

    reason = serializers.CharField(max_length=2000)


class Acknowledge(OneAlert):
    """Mark an alert as seen."""

    http_method_names = ["post", "options"]

    @extend_schema(request=AcknowledgeSerializer, responses=AlertDetailSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Acknowledge the alert; 409 if it is resolved."""
        body = AcknowledgeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            alerts.acknowledge(
                self.get_object(),
                actor=str(principal_of(request)),
                note=body.validated_data["note"],
            )
        except alerts.AlertNotOpen as error:
            raise Conflict(str(error)) from None
        return Response(self.get_serializer(self.get_object()).data)


class Resolve(OneAlert):
    """Close an alert by hand."""

    http_method_names = ["post", "options"]

    @extend_schema(request=ResolveSerializer, responses=AlertDetailSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resolve the alert; 409 if it is resolved. It opens anew if it is found again."""
        body = ResolveSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            alerts.resolve(
                self.get_object(),
                actor=str(principal_of(request)),
                reason=body.validated_data["reason"],
            )
        except alerts.AlertNotOpen as error:
            raise Conflict(str(error)) from None
        return Response(self.get_serializer(self.get_object()).data)


def _visible(view: generics.GenericAPIView[Alert]) -> QuerySet[Alert]:
    if getattr(view, "swagger_fake_view", False):
        return Alert.objects.none()
    return with_run(Alert.objects.filter(user__workspace=principal_of(view.request).workspace))


def with_run(found: QuerySet[Alert]) -> QuerySet[Alert]:
    """Join the users and, of the runs that found the alerts last, what an answer tells."""
    return found.select_related("user", "last_run").defer(
        "user__metadata", "last_run__input", "last_run__output", "last_run__stdout"
    )
