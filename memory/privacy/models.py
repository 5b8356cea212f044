"""Tombstones of erased users: who erased them, why, and how many rows were deleted."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import exactly_if, index_if_set
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser


class UserErasure(LeasedWork):
    """One user's erasure: pending work at first, then a tombstone once it is complete.

    See `memory.privacy.user_erasure`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.OneToOneField(MemoryUser, on_delete=models.PROTECT, related_name="erasure")
    by = models.CharField(max_length=200)
    reason = models.TextField()
    created_at = models.DateTimeField()

    due_at = models.DateTimeField(
        null=True, help_text="When work on the erasure is due; empty once it is complete."
    )
    finished_at = models.DateTimeField(null=True)
    counts = models.JSONField(default=dict, help_text="How many rows of each kind were deleted.")
    hosts = ArrayField(
        models.CharField(max_length=100),
        default=list,
        help_text="Sandbox hosts that have not yet confirmed that they hold none of the user's"
        " data.",
    )

    class Privacy:
        # This is the tombstone: who requested the erasure, and why, stays on record.
        erase = privacy.Erase.REDACT
        on_record = ("by", "reason")
        plain = ("counts", "hosts")
        export = "an erased user has no data left to export"
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "erasure"
        constraints = [
            exactly_if(
                models.Q(due_at=None), models.Q(finished_at__isnull=False), name="erasure_finished"
            ),
        ]
        indexes = [index_if_set("due_at", "erasure_due")]

    def __str__(self) -> str:
        return f"erasure {str(self.id)[:8]}"
