"""Runs."""

from django.contrib import admin

from memory.admin.base import ReadOnlyAdmin, link, preformatted, pretty
from memory.models import Run


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Every execution: why, on what, how it ended, and what it said."""

    list_display = ["name", "user_link", "kind", "trigger", "status", "outcome", "queued_at"]
    list_filter = ["kind", "status", "outcome", "trigger", "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["=id", "user__user_id"]
    ordering = ["-queued_at"]
    fields = [
        "id",
        "user_link",
        "kind",
        "trigger",
        "checkpoint_link",
        "instant",
        "status",
        "outcome",
        "ran_in",
        "asked",
        "result",
        "failure",
        "printed",
        "durations",
        "memory_bytes",
        "queued_at",
        "started_at",
        "finished_at",
        "attempts",
        "lease_owner",
        "last_error",
    ]

    @admin.display(description="run")
    def name(self, run: Run) -> str:
        """Name the run by the beginning of its id."""
        return str(run.pk)[:8]

    @admin.display(description="user")
    def user_link(self, run: Run) -> str:
        """Lead to the user."""
        return link(run.user)

    @admin.display(description="version")
    def checkpoint_link(self, run: Run) -> str:
        """Lead to the version."""
        return link(run.checkpoint, f"v{run.checkpoint.version}" if run.checkpoint else None)

    @admin.display(description="ran in")
    def ran_in(self, run: Run) -> str:
        """Name the kind of sandbox, and warn of the one for development."""
        if run.runner != "process":
            return run.runner or "–"
        return "process (for development only: it does not keep untrusted code in)"

    @admin.display(description="input")
    def asked(self, run: Run) -> str:
        """Show the code, or the edits."""
        code = run.input.get("code") if isinstance(run.input, dict) else None
        return preformatted(code) if code else pretty(run.input)

    @admin.display(description="output")
    def result(self, run: Run) -> str:
        """Show what came out."""
        return pretty(run.output)

    @admin.display(description="error")
    def failure(self, run: Run) -> str:
        """Show what went wrong."""
        return pretty(run.error)

    @admin.display(description="printed")
    def printed(self, run: Run) -> str:
        """Show the end of what the code printed."""
        return preformatted(run.stdout)

    @admin.display(description="seconds by stage")
    def durations(self, run: Run) -> str:
        """Show where the time went."""
        return pretty(run.timings)
