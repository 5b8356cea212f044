"""A workspace's overrides of the limits that stop a model: see `memory.llm.track_records`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.workspace_settings import overrides, track_record_settings


class TrackRecordSettings(models.Model):
    """Overrides of the track record that stops a model, the models stopped, and those resumed.

    An empty field inherits the server's setting. A change applies from the next call on.
    """

    llm_judged_sessions = models.PositiveIntegerField(
        "sessions",
        null=True,
        blank=True,
        help_text="A model is judged by so many of its last sessions at most,",
    )
    llm_judged_days = models.PositiveIntegerField(
        "days",
        null=True,
        blank=True,
        help_text="begun within so many days before its newest one,",
    )
    llm_judged_minimum = models.PositiveIntegerField(
        "minimum",
        null=True,
        blank=True,
        help_text="and not before there are so many.",
    )
    llm_refused_percent = models.PositiveIntegerField(
        "refused (%)",
        null=True,
        blank=True,
        help_text="It stops when the gate has refused more than this share of its sessions in the"
        " end; 100 for never.",
    )
    llm_undone_percent = models.PositiveIntegerField(
        "undone (%)",
        null=True,
        blank=True,
        help_text="It stops when more than this share of its accepted edits was undone by a return"
        " to an earlier version, or by reopening their entries; 100 for never.",
    )
    llm_resumptions = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="Model → since when it is judged anew, who let it go on, and why.",
    )
    llm_stops = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="Model → since when it is stopped, why, and by which limits.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_track_record(self) -> overrides.Chosen:
        """The workspace's overrides; None inherits the server's setting."""
        return overrides.chosen_of(self, track_record_settings.NUMBERS)

    def clean(self) -> None:
        """Refuse contradictory values."""
        super().clean()
        if problems := track_record_settings.problems(self.chosen_track_record):
            raise ValidationError(problems)
