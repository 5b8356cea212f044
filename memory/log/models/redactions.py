"""Redactions: what was redacted, by whom and why, and whether all derived data has been removed."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import index_if_set
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser


class Redaction(LeasedWork):
    """One redaction: its entries are cleared, and a worker removes everything based on them.

    See `memory.privacy.redaction`.
    """

    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="redactions")
    seq = models.BigIntegerField(
        help_text="The number of the log entry that records the redaction."
    )
    asked = ArrayField(
        models.BigIntegerField(),
        help_text="The numbers of the entries whose redaction was requested.",
    )
    entries = ArrayField(
        models.BigIntegerField(),
        help_text="The numbers of the requested entries and of all entries derived from them.",
    )
    by = models.CharField(max_length=200)
    reason = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    due_at = models.DateTimeField(
        null=True, help_text="When work on the redaction is due; empty once it is complete."
    )
    finished_at = models.DateTimeField(null=True)
    version = models.IntegerField(
        null=True,
        help_text="The version created without the redacted entries; empty if nothing in the"
        " project came from them.",
    )
    records = models.PositiveIntegerField(
        default=0, help_text="How many records were removed from the project."
    )
    constraints = models.PositiveIntegerField(
        default=0, help_text="How many constraints were removed from the project."
    )
    reopened = models.PositiveIntegerField(
        default=0,
        help_text="How many other entries the removed records and constraints were also based on;"
        " these entries are pending again.",
    )
    problem = models.TextField(
        blank=True,
        default="",
        help_text="The gate's objections to the project without the redacted entries.",
    )

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("reason", "problem")
        plain = ("by",)
        export = privacy.Export("redactions", "what was redacted, when and why", order=("seq",))
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["user", "seq"], name="redaction_of_user"),
            # An erasure ends the work on a redaction that is not finished.
            models.CheckConstraint(
                condition=models.Q(due_at=None) | models.Q(finished_at=None),
                name="redaction_finished",
            ),
        ]
        indexes = [index_if_set("due_at", "redaction_due")]

    def __str__(self) -> str:
        return f"{self.user} #{self.seq}"
