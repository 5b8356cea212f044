"""Admin screen for runs, such as queries, proposals and constraint runs."""

from collections.abc import Collection

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat

from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import (
    column,
    plain_column,
    row_column,
)
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    problem,
    sandbox,
    sandbox_badge,
)
from memory.kernel.admin.links import link_to_list, page_url
from memory.kernel.hooks import later
from memory.versions.admin.results import waterfall
from memory.versions.admin.run_display import limit_of, show_input, show_result, stages
from memory.versions.models.runs import REPEATABLE, Run, RunStatus

_run_again = later("memory.recall.admin.run_again:run_again")


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Runs, with their trigger, version, outcome and output."""

    labels = {
        "asked_by": "requested by",
        "checkpoint": "version",
        "stdout": "printed",
        "input": "raw input",
        "output": "raw output",
    }

    list_display = [
        "name",
        "user",
        "came_to",
        "why",
        "checkpoint",
        "took",
        "kind_of_sandbox",
        "queued_at",
    ]
    list_filter = ["kind", "status", "outcome", "trigger", "queued_at"]
    list_select_related = ["user", "checkpoint"]
    search_fields = ["=id", "user__user_id"]
    search_help_text = "Search by run id or user id."
    ordering = ["-queued_at"]
    actions = ["run_again"]
    when_empty = "Nothing has been executed yet."
    fieldsets = [
        section(
            None,
            *("user", "kind", "came_to", "failure", "limit_hit", "checkpoint", "why"),
            *("asked_by", "instant", "ran_in", "ran_on"),
        ),
        section("Input and output", "shown_input", "result", "stdout"),
        section("Alerts", "did", "last_alerts"),
        section("Time and cost", "durations", "memory", "queued_at", "started_at", "finished_at"),
        section(
            "Work status",
            *("id", "attempts", "lease_owner", "lease_expires_at", "last_error", "input"),
            "output",
            collapsed=True,
        ),
    ]

    name = row_column(str, "run", "kind", plain=True)
    kind_of_sandbox = column("runner", sandbox_badge, "sandbox", "runner", plain=True)
    ran_in = column("runner", sandbox, "executed in", plain=True)
    shown_input = row_column(show_input, "input")
    result = row_column(show_result, "output")
    failure = column("error", problem, "error")
    did = row_column(later("memory.alerts.admin.alert_events:show_events"), "result")

    def actions_for(self, row: Run) -> Collection[str]:
        can_repeat = row.kind in REPEATABLE and row.status == RunStatus.DONE
        return self.actions if can_repeat else []

    @admin.action(description="Run again", permissions=["operate"])
    def run_again(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Rerun a run, and show the new one.

        A query or constraint trial is rerun on the same version with the same evaluation time; a
        run of all constraints uses the newest version and the current time.
        """
        chosen = list(queryset.defer(None).select_related("checkpoint")[:2])
        if len(chosen) != 1:
            messages.error(request, "Nothing was done: select only one run.")
            return None
        again: Run | None = _run_again(request, chosen[0])
        return HttpResponseRedirect(page_url(again)) if again else None

    @plain_column("outcome", "outcome")
    def came_to(self, run: Run) -> str:
        if run.status != RunStatus.DONE:
            return badge(run.status, run.get_status_display())
        return badge(run.outcome, run.get_outcome_display())

    @plain_column("trigger", "trigger")
    def why(self, run: Run) -> str:
        return run.get_trigger_display()

    @plain_column("limit")
    def limit_hit(self, run: Run) -> str:
        return limit_of(run) or NOTHING

    @plain_column("took")
    def took(self, run: Run) -> str:
        seconds = run.timings.get("total")
        return NOTHING if seconds is None else f"{seconds:.2f} s"

    @plain_column("executed on")
    def ran_on(self, run: Run) -> str:
        """Show the name of the worker that executed the run; the worker may no longer exist."""
        return inline(run.host) if run.host else NOTHING

    @plain_column("last reported by this run")
    def last_alerts(self, run: Run) -> str:
        number = run.alerts.listed().count()
        if not number:
            return NOTHING
        return link_to_list("alert", counted(number, "alert"), last_run__id__exact=run.pk)

    @plain_column("time by stage")
    def durations(self, run: Run) -> str:
        return waterfall(stages(run))

    @plain_column("memory")
    def memory(self, run: Run) -> str:
        return NOTHING if run.memory_bytes is None else filesizeformat(run.memory_bytes)
