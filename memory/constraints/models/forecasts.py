"""Forecasts of the alerts that constraints will raise if nothing changes but the clock."""

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import ExactJSONField, index_if_set
from memory.kernel.models.leased import MortalWork
from memory.kernel.models.users import MemoryUser
from memory.versions.models.checkpoints import Checkpoint


class Forecast(MortalWork):
    """The newest forecast for one user, and when the next one is due.

    See `memory.constraints.forecasts`.
    """

    user = models.OneToOneField(MemoryUser, on_delete=models.CASCADE, related_name="forecast")
    due_at = models.DateTimeField(
        null=True, help_text="When the next forecast is due; empty if no forecast is due."
    )

    checkpoint = models.ForeignKey(
        Checkpoint, null=True, on_delete=models.CASCADE, related_name="+"
    )
    basis = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Hash of the forecast's inputs other than the version.",
    )
    computed_at = models.DateTimeField(null=True)
    start = models.DateTimeField(null=True, help_text="When the forecast begins.")
    horizon_days = models.PositiveIntegerField(default=0)
    known_until = models.DateTimeField(
        null=True, help_text="The time until which the forecast covers all constraints."
    )
    needs_daily = models.BooleanField(
        default=False,
        help_text="Whether the constraints have to run daily, because at least one of them has no"
        " forecast.",
    )
    results = ExactJSONField(
        default=dict,
        help_text="The result for each constraint, kept so that later forecasts can reuse it.",
    )
    timeline = ExactJSONField(
        default=list, help_text="Which alerts open, change and resolve, and when."
    )
    next_change = models.DateTimeField(null=True)
    wakes_at = models.DateTimeField(
        null=True, help_text="When the constraints will run next because of the forecast."
    )
    timings = models.JSONField(
        default=dict,
        help_text="How many seconds and calls the forecast took, and how many results were new or"
        " reused.",
    )

    LARGE = ("results", "timeline")

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("results", "timeline", "basis")
        plain = ("timings",)
        export = privacy.Export("forecast", "the forecast of future alerts")
        section = privacy.Section.PEOPLE

    class Meta:
        indexes = [
            index_if_set("dead_since", "forecast_dead"),
            index_if_set("due_at", "forecast_due"),
        ]

    def __str__(self) -> str:
        return f"forecast of {self.user}"
