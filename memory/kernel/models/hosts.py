"""Sandbox hosts: the workers that run users' code."""

from django.db import models

from memory.kernel.models import privacy


class SandboxHost(models.Model):
    """A sandbox worker's heartbeat, updated every few seconds. See `memory.kernel.work.hosts`."""

    name = models.CharField(primary_key=True, max_length=100)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="The time of the last heartbeat.")
    threads = models.IntegerField(help_text="The maximum number of concurrent jobs.")
    report = models.JSONField(default=dict, help_text="The worker's report on its sandboxes.")

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.OPERATION

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
