"""`/v1/users/{user_id}/forecast/`: how alerts will change if nothing but the clock changes."""

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.alerts.models.alerts import Severity
from memory.constraints import applicability, forecasts
from memory.constraints.models.forecasts import Forecast
from memory.kernel.http import operations
from memory.kernel.http.serializers import strings
from memory.kernel.http.stored import RunErrorField
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.project import Outline

EVENT_KINDS = ("opens", "changes", "resolves", "fails", "recovers")


class ForeseenCauseSerializer(serializers.Serializer[Any]):
    """A constraint behind a forecast event."""

    constraint = serializers.CharField()
    fingerprint = serializers.CharField(help_text="The fingerprint of the constraint's own alert.")
    key = serializers.CharField(allow_null=True)


class ForeseenEventSerializer(serializers.Serializer[Any]):
    """A forecast event for one alert, or for a constraint that will fail."""

    at = serializers.DateTimeField(help_text="When the constraints will run because of this event.")
    day = serializers.DateField(
        allow_null=True,
        help_text="The date of the event in the user's time zone; null if the event depends on the"
        " time of day.",
    )
    kind = serializers.ChoiceField(choices=EVENT_KINDS)
    constraint = serializers.CharField()
    causes = ForeseenCauseSerializer(
        many=True,
        help_text="The constraints behind the event: `constraint` first, then other constraints"
        " that report the same finding about the same records at the same time. Such a shared"
        " event is listed only once, like a shared alert.",
    )
    severity = serializers.ChoiceField(
        choices=Severity.choices,
        allow_null=True,
        help_text="The severity from this event on; for `resolves`, the severity until the event.",
    )
    fingerprint = serializers.CharField(help_text="The fingerprint of the alert.")
    key = serializers.CharField(allow_null=True)
    records = strings("The evidence: domain.collection:key.")
    error = serializers.CharField(
        allow_null=True, help_text="The error that the constraint will fail with."
    )


class ForeseenLapseSerializer(serializers.Serializer[Any]):
    """A record that will lapse."""

    day = serializers.DateField(
        help_text="The first day, in the user's time zone, on which it no longer holds."
    )
    record = serializers.CharField(help_text="The record: domain.collection:key.")


class UnforeseenSerializer(serializers.Serializer[Any]):
    """A constraint without a forecast, or with a forecast that ends early."""

    constraint = serializers.CharField()
    known_until = serializers.DateTimeField(
        allow_null=True,
        help_text="The end of the constraint's forecast; null if the constraint has no forecast.",
    )
    error = RunErrorField()


class ForecastSerializer(serializers.Serializer[Any]):
    """The alerts that will open, change and resolve if nothing changes but the clock."""

    version = serializers.IntegerField(
        allow_null=True,
        help_text="The project version on which the forecast is based; null if there is no forecast"
        " yet.",
    )
    current = serializers.BooleanField(
        help_text="Whether the forecast is based on the newest version, the current time zone and"
        " the workspace's current constraints."
    )
    computed_at = serializers.DateTimeField(allow_null=True)
    start = serializers.DateTimeField(allow_null=True)
    horizon_days = serializers.IntegerField(
        help_text="How many days forecasts look ahead; 0 if the server computes none."
    )
    known_until = serializers.DateTimeField(
        allow_null=True, help_text="The time until which the forecast covers all constraints."
    )
    next_change = serializers.DateTimeField(allow_null=True)
    wakes_at = serializers.DateTimeField(
        allow_null=True,
        help_text="The time of the next constraint run that the forecast will trigger.",
    )
    events = ForeseenEventSerializer(
        many=True,
        help_text="The events since the start of the forecast, in chronological order.",
    )
    lapses = ForeseenLapseSerializer(
        many=True,
        help_text="The records of the newest version that will lapse within `horizon_days` from"
        " today, soonest first, with or without constraints; in a very large domain, only the"
        " newest are looked at. If constraints read them, `events` has what follows.",
    )
    unforeseen = UnforeseenSerializer(many=True)


class UserForecast(UserScopedView):
    """The forecast for a user."""

    @operations.read(responses=ForecastSerializer)
    def get(self, request: Request, user_id: str) -> Response:
        """Return the alerts that will open, change and resolve if nothing changes but the clock."""
        user = self.memory_user()
        lapses = [{"day": day, "record": name} for day, name in forecasts.lapses(user)]
        rows = Forecast.objects.filter(user=user, checkpoint__isnull=False)
        forecast = defer_large(rows, "checkpoint", keep=Forecast.LARGE).first()
        if forecast is None or forecast.checkpoint is None:
            none = {**_NONE, "horizon_days": settings.UAC_FORECAST_DAYS, "lapses": lapses}
            return Response(ForecastSerializer(none).data)
        answer = {
            "version": forecast.checkpoint.version,
            "current": _is_current(user, forecast),
            **{name: getattr(forecast, name) for name in _COPIED},
            "events": forecasts.add_causes(forecast.timeline),
            "lapses": lapses,
            "unforeseen": forecasts.unforeseen(forecast, user.time_zone),
        }
        return Response(ForecastSerializer(answer).data)


_COPIED = ("computed_at", "start", "horizon_days", "known_until", "next_change", "wakes_at")
_NONE: dict[str, Any] = {
    **dict.fromkeys(("version", *_COPIED)),
    "current": False,
    "events": [],
    "unforeseen": [],
}


def _is_current(user: MemoryUser, forecast: Forecast) -> bool:
    if user.head is None or user.alerts_instant is None:
        return False
    applicabilities = applicability.applicabilities(user, Outline.from_json(user.head.outline))
    basis = forecasts.basis_of(user, applicabilities)
    return forecasts.is_fresh(forecast, user.head, user.alerts_instant, basis)
