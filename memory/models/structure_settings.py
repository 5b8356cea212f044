"""A workspace's overrides of when its language model works: see `memory.work.batching`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.work import batching
from memory.workspace_settings import overrides


class StructureSettings(models.Model):
    """Overrides of when the language model works on the entries of a workspace's users.

    An empty field inherits the server's setting. A change applies from the next entry on.
    """

    structure_entries = models.PositiveIntegerField(
        "entries",
        null=True,
        blank=True,
        help_text="Work begins as soon as so many entries of a user wait,",
    )
    structure_idle_seconds = models.PositiveIntegerField(
        "idle seconds",
        null=True,
        blank=True,
        help_text="or none has come for so long,",
    )
    structure_age_seconds = models.PositiveIntegerField(
        "age in seconds",
        null=True,
        blank=True,
        help_text="or the oldest has waited for so long, even if others keep coming.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_schedule(self) -> overrides.Chosen:
        """The workspace's overrides; None inherits the server's setting."""
        return overrides.chosen_of(self, batching.NUMBERS)

    def clean(self) -> None:
        """Refuse contradictory values."""
        super().clean()
        if problems := batching.problems(self.chosen_schedule):
            raise ValidationError(problems)
