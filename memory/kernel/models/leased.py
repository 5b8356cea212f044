"""Base classes for rows that represent work: see `memory.kernel.work.leases`."""

from django.db import models
from django.utils import timezone


class LeasedWork(models.Model):
    """Work that only one worker can do at a time.

    `token` increases with every claim. A worker can commit only while it holds the current token,
    so a worker that was presumed dead can't overwrite its successor's result.
    """

    run_after = models.DateTimeField(
        default=timezone.now, help_text="The work is not attempted again before this time."
    )
    hinted_at = models.DateTimeField(
        null=True, help_text="When workers were last notified of the work."
    )
    lease_owner = models.CharField(max_length=100, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0)
    attempts = models.IntegerField(
        default=0, help_text="How many times the work has been attempted since it last succeeded."
    )
    last_error = models.TextField(blank=True, default="")

    class Privacy:
        content = ("last_error",)
        plain = ("lease_owner",)

    class Meta:
        abstract = True


class MortalWork(LeasedWork):
    """Work that fails permanently after a limited number of attempts.

    All other work is retried forever, at increasing intervals.
    """

    dead_since = models.DateTimeField(
        null=True,
        help_text="When the work failed permanently; empty if it has not failed, or if staff"
        " have retried or dismissed it.",
    )

    class Meta:
        abstract = True
