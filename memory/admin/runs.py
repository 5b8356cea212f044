"""Admin screen for runs, such as queries, proposals and runs of a user's constraints."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin.base import (
    ReadOnlyAdmin,
    heavy,
    link,
    link_to_key,
    link_to_list,
    link_to_rejected,
    links_to_entries,
    page_url,
    staff_of,
)
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    folded,
    gate,
    inline,
    lines,
    preformatted,
    pretty,
    problem,
    sandbox,
    sandbox_badge,
    shortened,
    source,
    visible,
)
from memory.admin.edits import show_edits
from memory.admin.results import Stage, show_value, waterfall
from memory.admission import usage
from memory.api import waiting
from memory.checkpoints import Redacted
from memory.models import Alert, AlertEvent, MemoryUser, Run
from memory.models.runs import BY_MODEL, RunKind, RunOutcome, RunStatus
from memory.privacy.redaction import TOLD
from memory.recall import queries
from memory.staff import access
from memory.temporal import history
from memory.users import UserMerged
from memory.workspace_settings import sandbox_limits

# Maximum number of records shown as the evidence for an answer.
SHOWN_EVIDENCE = 20
# The errors with which a run may be refused.
REFUSED = (
    queries.NotAgain,
    queries.NoState,
    UserMerged,
    history.BeingRedacted,
    Redacted,
    usage.Exceeded,
)
# How long, in seconds, a page waits for the run that it has started.
_WAIT_SECONDS = 5.0
# The limits that can cause each outcome.
LIMITS_OF = {
    RunOutcome.TIMEOUT: ("wall_seconds", "cpu_seconds", "total_seconds"),
    RunOutcome.OUT_OF_MEMORY: ("process_memory_mib", "memory_mib"),
    RunOutcome.OUTPUT_LIMIT: ("output_kib",),
    RunOutcome.RESULT_LIMIT: ("result_kib", "result_depth"),
}
# Display names of the stages whose duration the workers measure.
STAGES = {
    "load": "loaded the project into a sandbox",
    "evaluate": "ran the query",
    "constraints": "ran the constraints",
    "types": "checked the types",
    "compile": "compiled the files",
}
QUERY_PATH = "<query>"
SCOPES = {"value": "in the value", "selected": "selected by the code", "read": "read by the code"}


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
        """Offer to repeat a finished run if runs of its kind can be repeated."""
        again = row.kind in queries.REPEATABLE and row.status == RunStatus.DONE
        return self.actions if again else []

    @admin.action(description="Run again", permissions=["operate"])
    def run_again(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Repeat a run, and show the new one.

        A query or a constraint's trial is repeated on the same version and at the same evaluation
        time; a run of all constraints uses the newest version and the current time.
        """
        chosen = list(queryset.defer(None).select_related("checkpoint")[:2])
        if len(chosen) != 1:
            messages.error(request, "Nothing was done: select one run only.")
            return None
        try:
            again = queries.run_again(chosen[0], staff=staff_of(request))
        except REFUSED as error:
            messages.error(request, f"Nothing was done: {visible(str(error))}")
            return None
        messages.success(request, "The run was queued again: reload this page to see its result.")
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
        """Show the limit that ended the run, with the limit's current value in the workspace."""
        return limit_of(run) or NOTHING

    @admin.display(description="version", ordering="checkpoint__version")
    def checkpoint_link(self, run: Run) -> str:
        """Link to the version on which the run was executed."""
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
        """Show the run's input: a question, code, edits or the names of files."""
        if run.kind in BY_MODEL:
            return inline(run.input.get("question", TOLD))
        if run.input.get("code"):
            if run.kind != RunKind.QUERY:
                return source(run.input["code"])
            console = reverse("admin:memory_memoryuser_console", args=[run.user_id])
            return format_html(
                '{}<a href="{}?run={}">Open in the console</a>',
                source(run.input["code"], marked=failed_lines(run)),
                console,
                run.pk,
            )
        if run.kind == RunKind.CONSTRAINT:
            return inline(run.input.get("constraint", TOLD))
        if run.input.get("edits"):
            return format_html(
                "<div>{}</div>{}", _describe_trial(run), show_edits(run.input["edits"])
            )
        if run.input.get("files"):
            return lines(inline(path) for path in run.input["files"])
        if run.kind == RunKind.CONSTRAINTS:
            return "all constraints in this version"
        return _describe_trial(run) or NOTHING

    @admin.display(description="output")
    def result(self, run: Run) -> str:
        """Show the run's result: findings, a value or the gate's verdict."""
        output = run.output
        if not isinstance(output, dict):
            return NOTHING
        if run.kind == RunKind.CONSTRAINTS:
            found = [_constraint(said) for said in output.get("constraints", [])]
            left = [one for one in output.get("workspace", []) if not one["applies"]]
            return lines([*found, *map(_not_applying, left)])
        if run.kind == RunKind.CONSTRAINT:
            return _show_trial(run, output)
        if run.kind == RunKind.QUERY:
            return _value(run, output)
        if run.kind == RunKind.FOLLOW_UP:
            return inline(output["question"])
        if run.kind == RunKind.ASK:
            return _answer(run, output)
        accepted, verdict = output.get("version"), output.get("verdict") or {}
        alerts = verdict.get("alerts")
        return format_html(
            "{}{}{}{}",
            format_html("<div>became v{}</div>", accepted) if accepted else "",
            gate(verdict),
            _findings(f"as of {verdict['day']}", alerts) if alerts else "",
            pretty(output["import"]) if output.get("import") else "",
        )

    @admin.display(description="error")
    def failure(self, run: Run) -> str:
        """Show the run's error."""
        return problem(run.error)

    @admin.display(description="printed")
    def printed(self, run: Run) -> str:
        """Show the end of what the code printed."""
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
        """Show when each stage of the run began after the request, and how long it took."""
        return waterfall(stages(run))

    @admin.display(description="memory")
    def memory(self, run: Run) -> str:
        """Show the peak memory use of the code."""
        return NOTHING if run.memory_bytes is None else filesizeformat(run.memory_bytes)

    @admin.display(description="raw input")
    def raw_input(self, run: Run) -> str:
        """Show the run's input as it is stored."""
        return pretty(run.input)

    @admin.display(description="raw output")
    def raw_output(self, run: Run) -> str:
        """Show the run's output as it is stored."""
        return pretty(run.output)


def limit_of(run: Run) -> SafeString | str:
    """Return the limit that ended a run, with its current value; empty if no limit ended it."""
    names = LIMITS_OF.get(RunOutcome(run.outcome), ()) if run.outcome else ()
    if run.outcome == RunOutcome.ALERT_LIMIT:
        most = run.user.workspace.alert_limits.alerts_per_constraint
        return f"alerts_per_constraint: {most} (current value)"
    holds = run.user.workspace.limits if names else None
    return (
        lines(
            f"{name}: {sandbox_limits.LIMITS[name].amount(getattr(holds, name))} (current value)"
            for name in names
        )
        if names
        else ""
    )


def failed_lines(run: Run) -> list[int]:
    """Return the line on which the query failed, as a list; empty if it is unknown."""
    error = run.error or {}
    return [error["line"]] if error.get("path") == QUERY_PATH and error.get("line") else []


def stages(run: Run) -> list[Stage]:
    """Return the stages of a run: waiting, each timed step, and storing."""
    if run.started_at is None and not run.timings:
        return []
    began = run.started_at or run.queued_at
    waited = max((began - run.queued_at).total_seconds(), 0.0)
    tries = f" ({counted(run.attempts, 'attempt')})" if run.attempts > 1 else ""
    found = [Stage(f"waited{tries}", 0.0, waited)]
    timed = {name: seconds for name, seconds in run.timings.items() if name != "total"}
    total = run.timings.get("total", sum(timed.values()))
    at = waited
    for name, seconds in timed.items():
        found.append(Stage(STAGES.get(name, name), at, seconds))
        at += seconds
    if (rest := waited + total - at) > 0.0005:
        found.append(Stage("other work" if timed else "executed", at, rest))
        at += rest
    if run.finished_at is not None:
        end = (run.finished_at - run.queued_at).total_seconds()
        if end - at > 0.0005:
            found.append(Stage("claimed and stored", at, end - at))
    return found


def _describe_trial(run: Run) -> str:
    """Describe a dry run of a proposal; without edits, a dry run reports the version's findings."""
    if not run.input.get("dry_run"):
        return ""
    return "test run: nothing is stored" if run.input.get("edits") else "the version's findings"


def _show_trial(run: Run, output: Mapping[str, Any]) -> SafeString | str:
    """Show the findings of a constraint's trial, or why the constraint does not apply."""
    if not output["applies"]:
        return _not_applying({"path": output["constraint"], "reasons": output["reasons"]})
    if output["alerts"]:
        return _findings("", output["alerts"])
    return badge("ok", "no alerts") if run.outcome == RunOutcome.OK else NOTHING


def _not_applying(standing: Mapping[str, Any]) -> SafeString:
    """Show why a workspace constraint did not run."""
    why = "; ".join(standing["reasons"])
    return format_html("{} {}: {}", badge("not executed"), inline(standing["path"]), inline(why))


def _constraint(said: Mapping[str, Any]) -> SafeString:
    """Show the alerts of one constraint, or why the constraint failed."""
    title = format_html("{}, {} s", inline(said["path"]), f"{said['seconds']:.3f}")
    if said["error"]:
        return format_html("{} {}{}", badge("failed"), title, problem(said["error"]))
    if not said["alerts"]:
        return format_html("{} {}", badge("ok", "no alerts"), title)
    return _findings(title, said["alerts"])


def _findings(title: SafeString | str, alerts: Sequence[Mapping[str, Any]]) -> SafeString:
    """Show a constraint's alerts, folded under a title that states their number."""
    number = badge("note", counted(len(alerts), "finding"))
    found = lines(
        format_html("{} {}", badge(alert["severity"]), inline(shortened(alert["message"])))
        for alert in alerts
    )
    return folded(format_html("{} {}", number, title), found, unfold=len(alerts) <= 10)


def show_answer(run: Run) -> SafeString | str:
    """Show the result of a query, and its evidence."""
    return _value(run, run.output) if isinstance(run.output, dict) else NOTHING


def _value(run: Run, output: Mapping[str, Any]) -> SafeString:
    """Show the computed value, and the records on which it is based."""
    value = format_html(
        '<div class="quiet">{}</div>{}',
        inline(str(output.get("type"))),
        show_value(output.get("value"), run.user),
    )
    evidence = output.get("evidence")
    if not evidence:
        return value
    records = [
        (f"{one['domain']}.{one['collection']} {key!r}", sources)
        for one in evidence["records"]
        for key, sources in zip(one["keys"], one["sources"], strict=True)
    ]
    shown = records[:SHOWN_EVIDENCE]
    named = [inline(name) for name, _ in shown]
    if (rest := evidence["count"] - len(shown)) > 0:
        named.append(format_html("and {} more", rest))
    rests = format_html(
        "Based on {} {}",
        counted(evidence["count"], "record"),
        SCOPES.get(evidence["scope"], evidence["scope"]),
    )
    entries = links_to_entries(run.user, (seq for _, sources in shown for seq in sources))
    # The value already shows its own records with their entries, so this evidence stays folded.
    unfold = evidence["scope"] != "value"
    return format_html(
        "{}{}",
        value,
        folded(rests, format_html("{}{}", lines(named), entries), unfold=unfold),
    )


def _answer(run: Run, output: Mapping[str, Any]) -> SafeString:
    """Show the answer that a language model's query has computed, or why it is unknown."""
    reason = format_html("<div>{}</div>", inline(output["reason"])) if output["reason"] else ""
    if not output["known"]:
        return format_html("not known{}", reason)
    query = link_to_key(Run, output["query"], "the query")
    return format_html("{}{}{}{}", _value(run, output), reason, source(output["code"]), query)


def may_ask(request: HttpRequest) -> bool:
    """Return whether a staff member may run queries.

    This requires access to content, and the permission for actions on runs.
    """
    runs = admin.site.get_model_admin(Run)
    allowed: bool = runs.has_operate_permission(request)  # type: ignore[attr-defined]
    sees = access.sees_content(request.user) and runs.has_view_permission(request)
    return allowed and sees


def wait_a_little(run: Run) -> None:
    """Wait briefly for a run that a page has started, so that the page usually shows the result."""
    waiting.for_run(run, min(_WAIT_SECONDS, float(settings.UAC_MAX_WAIT_SECONDS)))


def asked_run(request: HttpRequest, user: MemoryUser, rows: QuerySet[Run]) -> Run | None:
    """Return the run that the URL names; None if it names no run.

    Raises Http404 if the named run is not among the user's `rows`.
    """
    key = request.GET.get("run")
    if key is None:
        return None
    try:
        run = rows.get(pk=uuid.UUID(key))
    except (ValueError, Run.DoesNotExist):
        raise Http404("This user has no such run.") from None
    run.user = user
    return run
