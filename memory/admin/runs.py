"""Admin screen for runs, such as queries, proposals and constraint runs."""

from collections.abc import Collection

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html

from memory.admin.actions import staff_of
from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    lines,
    preformatted,
    pretty,
    problem,
    sandbox,
    sandbox_badge,
    shortened,
    visible,
)
from memory.admin.links import link, link_to_list, link_to_rejected, page_url
from memory.admin.results import waterfall
from memory.admin.rows import heavy
from memory.admin.run_display import limit_of, show_input, show_result, stages
from memory.admin.staff_runs import REFUSED
from memory.models import Alert, AlertEvent, Run
from memory.models.runs import RunStatus
from memory.recall import queries


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Runs, with their trigger, version, outcome and output."""

    list_display = [
        "name",
        "user_link",
        "came_to",
        "why",
        "checkpoint_link",
        "took",
        "kind_of_sandbox",
        "queued_at",
    ]
    list_filter = [
        "kind",
        "status",
        "outcome",
        "trigger",
        ("queued_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user", "checkpoint"]
    search_fields = ["=id", "user__user_id"]
    search_help_text = "Search by run id or user id."
    ordering = ["-queued_at"]
    actions = ["run_again"]
    when_empty = "Nothing has been executed yet."
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "user_link",
                    "kind",
                    "came_to",
                    "failure",
                    "limit_hit",
                    "checkpoint_link",
                    "why",
                    "who_asked",
                    "instant",
                    "ran_in",
                    "ran_on",
                ]
            },
        ),
        ("Input and output", {"fields": ["asked", "result", "printed"]}),
        ("Alerts", {"fields": ["did", "found"]}),
        (
            "Time and cost",
            {"fields": ["durations", "memory", "queued_at", "started_at", "finished_at"]},
        ),
        (
            "Work status",
            {
                "classes": ["collapse"],
                "fields": [
                    "id",
                    "attempts",
                    "lease_owner",
                    "lease_expires_at",
                    "last_error",
                    "raw_input",
                    "raw_output",
                ],
            },
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Defer the columns that lists do not show."""
        return (
            super()
            .get_queryset(request)
            .defer("input", "output", "error", "stdout", *heavy("checkpoint"))
        )

    def actions_for(self, row: Run) -> Collection[str]:
        """Offer to rerun a finished run if its kind can be rerun."""
        again = row.kind in queries.REPEATABLE and row.status == RunStatus.DONE
        return self.actions if again else []

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
        try:
            again = queries.run_again(chosen[0], staff=staff_of(request))
        except REFUSED as error:
            messages.error(request, f"Nothing was done: {visible(str(error))}")
            return None
        messages.success(request, "The run was queued again. Reload this page to see its result.")
        return HttpResponseRedirect(page_url(again))

    @admin.display(description="run", ordering="kind")
    def name(self, run: Run) -> str:
        """Show the run's kind and the beginning of its id."""
        return str(run)

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, run: Run) -> str:
        """Link to the user."""
        return link(run.user)

    @admin.display(description="outcome", ordering="outcome")
    def came_to(self, run: Run) -> str:
        """Show the run's outcome or, until the run is done, its status."""
        if run.status != RunStatus.DONE:
            return badge(run.status, run.get_status_display())
        return badge(run.outcome, run.get_outcome_display())

    @admin.display(description="trigger", ordering="trigger")
    def why(self, run: Run) -> str:
        """Show what triggered the run."""
        return run.get_trigger_display()

    @admin.display(description="requested by")
    def who_asked(self, run: Run) -> str:
        """Show which staff member requested the run."""
        return inline(run.asked_by) if run.asked_by else NOTHING

    @admin.display(description="limit")
    def limit_hit(self, run: Run) -> str:
        """Show the limit that ended the run, with its current value in the workspace."""
        return limit_of(run) or NOTHING

    @admin.display(description="version", ordering="checkpoint__version")
    def checkpoint_link(self, run: Run) -> str:
        """Link to the version that the run was executed on."""
        return link(run.checkpoint, f"v{run.checkpoint.version}" if run.checkpoint else None)

    @admin.display(description="took")
    def took(self, run: Run) -> str:
        """Show how long the execution took."""
        seconds = run.timings.get("total")
        return NOTHING if seconds is None else f"{seconds:.2f} s"

    @admin.display(description="sandbox", ordering="runner")
    def kind_of_sandbox(self, run: Run) -> str:
        """Show the kind of sandbox that executed the run."""
        return sandbox_badge(run.runner)

    @admin.display(description="executed in")
    def ran_in(self, run: Run) -> str:
        """Show the kind of sandbox that the run used, with a warning if it is for development."""
        return sandbox(run.runner)

    @admin.display(description="executed on")
    def ran_on(self, run: Run) -> str:
        """Show the name of the worker that executed the run; the worker may no longer exist."""
        return inline(run.host) if run.host else NOTHING

    @admin.display(description="input")
    def asked(self, run: Run) -> str:
        """Show the run's input: a question, code, edits or file names."""
        return show_input(run)

    @admin.display(description="output")
    def result(self, run: Run) -> str:
        """Show the run's result: findings, a value or the gate's verdict."""
        return show_result(run)

    @admin.display(description="error")
    def failure(self, run: Run) -> str:
        """Show the run's error."""
        return problem(run.error)

    @admin.display(description="printed")
    def printed(self, run: Run) -> str:
        """Show the end of the code's printed output."""
        return preformatted(run.stdout)

    @admin.display(description="result")
    def did(self, run: Run) -> str:
        """Link to the alerts that the run opened, changed or resolved."""
        steps = AlertEvent.objects.filter(run=run).select_related("alert").order_by("seq")
        return lines(
            format_html(
                "{} {}",
                badge(step.kind, step.get_kind_display()),
                link(step.alert, shortened(str(step.alert)))
                if step.alert
                else link_to_rejected(step),
            )
            for step in steps[:100]
        )

    @admin.display(description="last reported by this run")
    def found(self, run: Run) -> str:
        """Link to the alerts that this run was the last to report."""
        number = run.alerts.listed().count()
        if not number:
            return NOTHING
        return link_to_list(Alert, counted(number, "alert"), last_run__id__exact=run.pk)

    @admin.display(description="time by stage")
    def durations(self, run: Run) -> str:
        """Show how long after the request each stage began, and how long it took."""
        return waterfall(stages(run))

    @admin.display(description="memory")
    def memory(self, run: Run) -> str:
        """Show the code's peak memory use."""
        return NOTHING if run.memory_bytes is None else filesizeformat(run.memory_bytes)

    @admin.display(description="raw input")
    def raw_input(self, run: Run) -> str:
        """Show the run's input as it is stored."""
        return pretty(run.input)

    @admin.display(description="raw output")
    def raw_output(self, run: Run) -> str:
        """Show the run's output as it is stored."""
        return pretty(run.output)
