"""Actions on an alert: acknowledge, snooze, reopen, resolve, give feedback."""

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerting import feedback, lifecycle
from memory.api import idempotency
from memory.api.alert_serializers import (
    AlertDetailSerializer,
    GiveFeedbackSerializer,
    NoteSerializer,
    ReasonSerializer,
    SnoozeSerializer,
)
from memory.api.alerts import OneAlert
from memory.api.authentication import principal_of
from memory.api.errors import Conflict
from memory.models import Alert
from memory.models.alerts import Judge, Verdict


class ChangedAlert(OneAlert):
    """Base class for views that carry out an action on an alert."""

    http_method_names = ["post", "options"]

    def change(self, step: Callable[[Alert, str], object]) -> Response:
        """Apply `step` to the alert on the caller's behalf; return a response with the alert."""

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
        """Snooze the alert until a given time, or until it changes; 409 if it is resolved."""
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
        """Undo an acknowledgement, a snooze, or a manual resolution.

        409 if the alert is already open, or if its finding no longer exists.
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
        """Mark the alert as useful or wrong, whether it is live or resolved.

        The product gives one verdict per alert, and may change it. 409 if the alert reports that a
        constraint failed or was paused.
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
    """Resolve an alert manually."""

    @extend_schema(
        request=ReasonSerializer,
        responses={200: AlertDetailSerializer, **idempotency.RESPONSES},
        parameters=[idempotency.HEADER],
    )
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resolve the alert; 409 if it is already resolved.

        No new alert is opened as long as the constraint's finding stays unchanged. To resolve an
        alert about a paused constraint, resume the constraint.
        """
        body = ReasonSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data["reason"]
        return self.change(
            lambda alert, actor: lifecycle.resolve(alert, actor=actor, reason=reason)
        )
