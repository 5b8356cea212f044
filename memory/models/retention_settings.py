"""A workspace's overrides of retention periods: see `memory.privacy.retention`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.workspace_settings import retention_settings


class RetentionSettings(models.Model):
    """Overrides of how long messages, runs and model calls are kept.

    An empty field inherits the server's setting.
    """

    keep_messages_days = models.PositiveIntegerField(
        "keep messages for (days)",
        null=True,
        blank=True,
        help_text="Then their words go; what was derived from them stays. 0 for ever.",
    )
    keep_runs_days = models.PositiveIntegerField(
        "keep runs for (days)",
        null=True,
        blank=True,
        help_text="Then they go, but not the last one that found a live alert. 0 for ever.",
    )
    keep_llm_calls_days = models.PositiveIntegerField(
        "keep model calls for (days)",
        null=True,
        blank=True,
        help_text="Then they go; what they have spent stays on record. 0 for ever.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_retention(self) -> retention_settings.Chosen:
        """The workspace's overrides; None inherits the server's setting."""
        return retention_settings.Chosen(
            keep_messages_days=self.keep_messages_days,
            keep_runs_days=self.keep_runs_days,
            keep_llm_calls_days=self.keep_llm_calls_days,
        )

    def clean(self) -> None:
        """Refuse implausible periods."""
        super().clean()
        if problems := retention_settings.problems(self.chosen_retention):
            raise ValidationError(problems)
