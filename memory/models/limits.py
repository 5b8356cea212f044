"""A workspace's overrides of sandbox limits: see `memory.workspace_settings.sandbox_limits`."""

from django.core.exceptions import ValidationError
from django.db import models

from memory.workspace_settings import sandbox_limits
from memory.workspace_settings.sandbox_limits import SandboxLimits


class SandboxSettings(models.Model):
    """Overrides of the limits under which the code of a workspace's users runs.

    An empty field inherits the server's setting. A change applies from the next run on.
    """

    wall_seconds = models.FloatField(
        null=True,
        blank=True,
        help_text="Seconds that one query, one constraint or one test file may take.",
    )
    total_seconds = models.FloatField(
        null=True,
        blank=True,
        help_text="Seconds that all constraints, or all test files, of a run may take together.",
    )
    cpu_seconds = models.PositiveIntegerField(
        "CPU seconds",
        null=True,
        blank=True,
        help_text="Seconds of processor time that one query, constraint or test file may take.",
    )
    process_memory_mib = models.PositiveIntegerField(
        "process memory (MiB)",
        null=True,
        blank=True,
        help_text="MiB that one query, constraint or test file may take with the project that is"
        " loaded for it. At most nearly half of the container's.",
    )
    output_kib = models.PositiveIntegerField(
        "output (KiB)",
        null=True,
        blank=True,
        help_text="KiB that one query, constraint or test file may print.",
    )
    result_kib = models.PositiveIntegerField(
        "result (KiB)",
        null=True,
        blank=True,
        help_text="KiB that the value of a query, or the findings of a run, may have.",
    )
    result_depth = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Levels that the value of a query may be nested.",
    )
    memory_mib = models.PositiveIntegerField(
        "container memory (MiB)",
        null=True,
        blank=True,
        help_text="MiB of one container. The loaded project may take nearly half of it.",
    )
    pids = models.PositiveIntegerField(
        "processes",
        null=True,
        blank=True,
        help_text="Processes of one container. A person's code may start none of its own.",
    )
    tmpfs_mib = models.PositiveIntegerField(
        "tmpfs (MiB)",
        null=True,
        blank=True,
        help_text="MiB of a /tmp to write to, emptied after every use. They count as memory of the"
        " container. With 0 there is none, and nothing can be written anywhere.",
    )
    single_use = models.BooleanField(
        "single-use containers",
        default=False,
        help_text="Destroy a container after every use. Otherwise a user's is kept for a moment in"
        " case the user comes back, which is many times faster.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_limits(self) -> dict[str, float | None]:
        """Name → override; None inherits the server's setting."""
        return {limit.name: getattr(self, limit.name) for limit in sandbox_limits.LIMITS}

    @property
    def limits(self) -> SandboxLimits:
        """The effective limits."""
        return sandbox_limits.effective(self.chosen_limits)

    def clean(self) -> None:
        """Refuse limits that the server cannot or may not grant, or that contradict each other."""
        super().clean()
        if problems := sandbox_limits.problems(self.chosen_limits):
            raise ValidationError(problems)
