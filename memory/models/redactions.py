"""Redactions: what was redacted, by whom and why, and whether all derived data is gone."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.models.leased import LeasedWork
from memory.models.users import MemoryUser


class Redaction(LeasedWork):
    """One redaction: the entries are emptied, and a worker removes everything based on them.

    See `memory.privacy.redaction`.
    """

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="redactions")
    seq = models.BigIntegerField(help_text="The log entry that records the redaction.")
    asked = ArrayField(
        models.BigIntegerField(), help_text="The entries whose redaction was requested."
    )
    entries = ArrayField(
        models.BigIntegerField(),
        help_text="The requested entries and all entries derived from them.",
    )
    by = models.CharField(max_length=200)
    reason = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    due_at = models.DateTimeField(null=True, help_text="Empty when the redaction is complete.")
    finished_at = models.DateTimeField(null=True)
    version = models.IntegerField(
        null=True,
        help_text="The version without the entries; empty if the project did not contain them.",
    )
    records = models.PositiveIntegerField(default=0, help_text="Records removed from the project.")
    constraints = models.PositiveIntegerField(
        default=0, help_text="Constraints removed from the project."
    )
    reopened = models.PositiveIntegerField(
        default=0,
        help_text="Other entries on which the removed records and constraints were also based;"
        " they are pending again.",
    )
    problem = models.TextField(
        blank=True,
        default="",
        help_text="The gate's objections to the project without the entries.",
    )

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["user", "seq"], name="redaction_of_user"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], name="redaction_due", condition=models.Q(due_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} #{self.seq}"
