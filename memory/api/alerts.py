"""`/v1/alerts/` and `/v1/users/{user_id}/alerts/`: what the constraints found."""

from collections.abc import Callable
from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory import alerts
from memory.api import idempotency
from memory.api.authentication import principal_of
from memory.api.errors import Conflict
from memory.api.serializers import StrictSerializer
from memory.api.users import UserScopedView
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


class ChangedAlert(OneAlert):
    """One alert that somebody changes by hand."""

    http_method_names = ["post", "options"]

    def change(self, step: Callable[[Alert, str], object]) -> Response:
        """Take a step in the alert's life, in the caller's name, and answer with the alert."""

        def do() -> Alert:
            alert = self.get_object()
            try:
                step(alert, str(principal_of(self.request)))
            except alerts.AlertNotOpen as error:
                raise Conflict(str(error)) from None
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
    """Mark an alert as seen."""

    @extend_schema(
        request=AcknowledgeSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Acknowledge the alert; 409 if it is resolved."""
        body = AcknowledgeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        note = body.validated_data["note"]
        return self.change(lambda alert, actor: alerts.acknowledge(alert, actor=actor, note=note))


class Resolve(ChangedAlert):
    """Close an alert by hand."""

    @extend_schema(
        request=ResolveSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resolve the alert; 409 if it is resolved. It opens anew if it is found again."""
        body = ResolveSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data["reason"]
        return self.change(lambda alert, actor: alerts.resolve(alert, actor=actor, reason=reason))


def _visible(view: generics.GenericAPIView[Alert]) -> QuerySet[Alert]:
    if getattr(view, "swagger_fake_view", False):
        return Alert.objects.none()
    return with_run(Alert.objects.filter(user__workspace=principal_of(view.request).workspace))


def with_run(found: QuerySet[Alert]) -> QuerySet[Alert]:
    """Join the users and, of the runs that found the alerts last, what an answer tells."""
    return found.select_related("user", "last_run").defer(
        "user__metadata", "last_run__input", "last_run__output", "last_run__stdout"
    )
