"""Completed writes, stored so that a repeated request gets a response without writing again."""

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace


class IdempotencyKey(models.Model):
    """A client's key for a write, and its result. See `memory.kernel.work.idempotency`."""

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, related_name="idempotency_keys"
    )
    user = models.ForeignKey(
        MemoryUser,
        on_delete=models.CASCADE,
        null=True,
        related_name="idempotency_keys",
        help_text="The user affected by the write, if any.",
    )
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(
        max_length=64, help_text="SHA-256 of the request's method, path and body."
    )
    reference = models.JSONField(help_text="What the write created or changed.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Privacy:
        erase = privacy.Erase.DELETE
        # A short request body can be guessed from its unkeyed hash.
        content = ("key", "fingerprint", "reference")
        export = privacy.Export("requests", "the Idempotency-Keys of the product's write requests")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "key"], name="idempotency_key_in_workspace"
            ),
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotency_key_age")]

    def __str__(self) -> str:
        return self.key
