"""Pauses of all work for a user or a workspace."""

import uuid

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace


class Pause(models.Model):
    """A pause of all work for one user or for all users in a workspace, set by staff.

    See `memory.kernel.pauses`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="pauses")
    user = models.ForeignKey(
        MemoryUser,
        null=True,
        on_delete=models.CASCADE,
        related_name="pauses",
        help_text="The paused user; empty if the pause applies to all users in the workspace.",
    )
    reason = models.TextField(blank=True, default="")
    paused_at = models.DateTimeField()
    paused_by = models.CharField(max_length=200)
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.CharField(max_length=200, blank=True, default="")

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("reason", "paused_by", "resumed_by")
        export = privacy.Export("pauses", "when staff paused the work for this person")
        section = privacy.Section.SERVER

    class Meta:
        ordering = ["-paused_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["user"],
                condition=models.Q(resumed_at__isnull=True),
                name="user_paused_once",
            ),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=models.Q(resumed_at__isnull=True, user__isnull=True),
                name="workspace_paused_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.workspace} paused {self.paused_at:%Y-%m-%d %H:%M}"
