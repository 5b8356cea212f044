"""Heartbeats and alarms, which track the server's own health."""

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.leased import LeasedWork


class Heartbeat(models.Model):
    """When a periodic job last succeeded: see `memory.operations.alarms`."""

    name = models.CharField(primary_key=True, max_length=50)
    at = models.DateTimeField()

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.SERVER

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Alarm(LeasedWork):
    """A current or past problem with the server, and the work of notifying staff about it."""

    name = models.CharField(max_length=100, unique=True)
    detail = models.TextField(help_text="A description of the current or most recent problem.")
    is_critical = models.BooleanField(
        default=False, help_text="Whether people wait for what the server does not do."
    )
    holds_since = models.DateTimeField(
        null=True, help_text="When the problem began; empty if there is no problem."
    )
    seen_at = models.DateTimeField(null=True, help_text="When the problem was last seen.")
    raised_at = models.DateTimeField(
        null=True,
        help_text="When the alarm was raised; empty until a problem has lasted long enough to raise"
        " it.",
    )
    cleared_at = models.DateTimeField(null=True, help_text="When the problem ended.")
    is_notified = models.BooleanField(
        default=True, help_text="Whether staff have been notified of the last change by e-mail."
    )

    class Privacy:
        erase = privacy.Erase.NOTHING
        plain = ("last_error",)
        section = privacy.Section.SERVER

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
