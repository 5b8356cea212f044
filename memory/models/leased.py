"""The base classes of rows that represent work: see `memory.work.leases`."""

from django.db import models
from django.utils import timezone


class LeasedWork(models.Model):
    """Work that only one worker does at a time.

    `token` grows with every claim. A worker commits only while it holds the current token, so a
    worker that was presumed dead cannot overwrite its successor.
    """

    run_after = models.DateTimeField(
        default=timezone.now, help_text="Not attempted again before this time."
    )
    hinted_at = models.DateTimeField(
        null=True, help_text="When workers were last notified of the work."
    )
    lease_owner = models.CharField(max_length=100, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0)
    attempts = models.IntegerField(default=0, help_text="Attempts since the last success.")
    last_error = models.TextField(blank=True, default="")

    class Meta:
        abstract = True


class MortalWork(LeasedWork):
    """Work that fails permanently after some attempts.

    Other work is retried forever, at growing intervals.
    """

    dead_since = models.DateTimeField(
        null=True,
        help_text="When the work failed permanently; empty if it has not failed, or if the staff"
        " have retried or dismissed it.",
    )

    class Meta:
        abstract = True
