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
        section = privacy.Section.SERVER

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


# Maps each runner to the warning shown with every result that its sandboxes compute.
WARNINGS = {
    "process": "Computed by the process runner, which is for development: it does not isolate"
    " untrusted code.",
}


def warning_of(runner: str) -> str | None:
    """Return the warning, if any, to show with results computed by this runner's sandboxes.

    `runner` is the name that the sandbox reported, or empty if no sandbox was used.
    """
    return WARNINGS.get(runner)
