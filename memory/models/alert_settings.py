"""A workspace's overrides of alert settings: see `memory.workspace_settings.alert_settings`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.workspace_settings import alert_settings, overrides


class AlertSettings(models.Model):
    """Overrides of when alerts are escalated, and of when a noisy constraint is paused.

    An empty field inherits the server's setting. A change applies to later events only.
    """

    escalate_critical_minutes = models.PositiveIntegerField(
        "escalate critical after (minutes)",
        null=True,
        blank=True,
        help_text="A critical alert that is open for so long is escalated; 0 for never.",
    )
    escalate_warning_minutes = models.PositiveIntegerField(
        "escalate warnings after (minutes)",
        null=True,
        blank=True,
        help_text="A warning that is open for so long is escalated; 0 for never.",
    )
    escalate_info_minutes = models.PositiveIntegerField(
        "escalate infos after (minutes)",
        null=True,
        blank=True,
        help_text="An info that is open for so long is escalated; 0 for never.",
    )
    alerts_per_constraint = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="A constraint that finds more than so many at once is paused.",
    )
    openings_per_day = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="A constraint that would open more than so many alerts of a user in 24 hours is"
        " paused.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_alert_settings(self) -> overrides.Chosen:
        """The workspace's overrides; None inherits the server's setting."""
        return overrides.chosen_of(self, alert_settings.NUMBERS)

    @property
    def alert_limits(self) -> alert_settings.Holding:
        """The effective settings."""
        return alert_settings.holding(self.chosen_alert_settings)

    def clean(self) -> None:
        """Refuse values that would have no effect or would pause every constraint."""
        super().clean()
        if problems := overrides.out_of_range(alert_settings.NUMBERS, self.chosen_alert_settings):
            raise ValidationError(problems)
