"""Heartbeats and alarms: the server's own health."""

from django.db import models

from memory.models.leased import LeasedWork


class Heartbeat(models.Model):
    """The last time at which a periodic job succeeded: see `memory.operations.alarms`."""

    name = models.CharField(primary_key=True, max_length=50)
    at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Alarm(LeasedWork):
    """A current or past problem of the server; the work of the row is to notify the staff."""

    name = models.CharField(max_length=100, unique=True)
    detail = models.TextField(help_text="What is wrong, or was last.")
    holds_since = models.DateTimeField(
        null=True, help_text="Since when it is so; empty when it is not."
    )
    seen_at = models.DateTimeField(null=True, help_text="When it was so last.")
    raised_at = models.DateTimeField(null=True, help_text="Empty: it is not, or not for long yet.")
    cleared_at = models.DateTimeField(null=True, help_text="When it was over.")
    is_told = models.BooleanField(
        default=True, help_text="Whether the staff were told of the last change by e-mail."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
