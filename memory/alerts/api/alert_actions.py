"""Actions on an alert: acknowledge, snooze, reopen, resolve, give feedback."""

from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts import feedback, lifecycle
from memory.alerts.api.alert_serializers import (
    AlertDetailSerializer,
    GiveFeedbackSerializer,
    NoteSerializer,
    ReasonSerializer,
    SnoozeSerializer,
)
from memory.alerts.api.alerts import OneAlert
from memory.alerts.models.alerts import Alert, Judge, Verdict
from memory.kernel.http import operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import as_conflict
from memory.kernel.http.serializers import validated


class ChangedAlert(OneAlert):
    """Base class for views that carry out an action on an alert."""

    http_method_names = ["post", "options"]

    def change(self, step: Callable[..., object], fields: Mapping[str, Any]) -> Response:
        """Apply `step` to the alert on the caller's behalf; return a response with the alert."""

        def do() -> Alert:
            alert = self.get_object()
            try:
                with as_conflict(lifecycle.AlertNotOpen, feedback.FeedbackRefused):
                    step(alert, actor=str(principal_of(self.request)), **fields)
            except lifecycle.SnoozeRefused as error:
                raise serializers.ValidationError({"until": [str(error)]}) from None
            return alert

        self.once(do)
        return Response(self.get_serializer(self.get_object()).data)


class Acknowledge(ChangedAlert):
    """Acknowledge an alert."""

    @operations.write({200: AlertDetailSerializer}, request=NoteSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Acknowledge the alert; 409 if it is resolved."""
        return self.change(lifecycle.acknowledge, validated(NoteSerializer, request.data))


class Snooze(ChangedAlert):
    """Snooze an alert."""

    @operations.write({200: AlertDetailSerializer}, request=SnoozeSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Snooze the alert until a given time, or until it changes; 409 if it is resolved."""
        with timezone.override(ZoneInfo(self.get_object().user.time_zone)):
            fields = validated(SnoozeSerializer, request.data)
        return self.change(lifecycle.snooze, {"until": None, **fields})


class Reopen(ChangedAlert):
    """Reopen an alert."""

    @operations.write({200: AlertDetailSerializer}, request=NoteSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Undo an acknowledgement, a snooze, or a manual resolution.

        409 if the alert is already open, or if its finding no longer exists.
        """
        return self.change(lifecycle.reopen, validated(NoteSerializer, request.data))


class Feedback(ChangedAlert):
    """Give feedback on an alert."""

    @operations.write({200: AlertDetailSerializer}, request=GiveFeedbackSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Mark the alert as useful or wrong, whether it is live or resolved.

        The product gives one verdict per alert, and may change it. 409 if the alert reports that a
        constraint failed or was paused.
        """
        fields = validated(GiveFeedbackSerializer, request.data)
        given = {**fields, "verdict": Verdict(fields["verdict"]), "judge": Judge.PRODUCT}
        return self.change(feedback.give, given)


class Resolve(ChangedAlert):
    """Resolve an alert manually."""

    @operations.write({200: AlertDetailSerializer}, request=ReasonSerializer)
    def post(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resolve the alert; 409 if it is already resolved.

        No new alert is opened as long as the constraint's finding stays unchanged. To resolve an
        alert about a paused constraint, resume the constraint.
        """
        return self.change(lifecycle.resolve, validated(ReasonSerializer, request.data))
