"""Runs."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin.base import (
    ReadOnlyAdmin,
    heavy,
    link,
    link_to_key,
    link_to_list,
    links_to_entries,
)
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    durations,
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
)
from memory.admin.edits import show_edits
from memory.models import Alert, AlertEvent, Run
from memory.models.runs import RunKind, RunStatus

# Of the records on which an answer rests, so many are shown.
SHOWN_EVIDENCE = 20
SCOPES = {"value": "in the value", "selected": "selected by the code", "read": "read by the code"}


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Every execution: why, on what, how it ended, and what it said."""

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
    search_help_text = "By run id or user id."
    ordering = ["-queued_at"]
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
                    "checkpoint_link",
                    "why",
                    "instant",
                    "ran_in",
                    "ran_on",
                ]
            },
        ),
        ("What went in and what came out", {"fields": ["asked", "result", "printed"]}),
        ("Alerts", {"fields": ["did", "found"]}),
        (
            "Times and cost",
            {"fields": ["durations", "memory", "queued_at", "started_at", "finished_at"]},
        ),
        (
            "Work on it",
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
        """Leave in the database what lists do not show."""
        return (
            super()
            .get_queryset(request)
            .defer("input", "output", "error", "stdout", *heavy("checkpoint"))
        )

    @admin.display(description="run", ordering="kind")
    def name(self, run: Run) -> str:
        """Name the run by its kind and the beginning of its id."""
        return str(run)

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, run: Run) -> str:
        """Lead to the user."""
        return link(run.user)

    @admin.display(description="outcome", ordering="outcome")
    def came_to(self, run: Run) -> str:
        """Show how it ended, or how far it got."""
        if run.status != RunStatus.DONE:
            return badge(run.status, run.get_status_display())
        return badge(run.outcome, run.get_outcome_display())

    @admin.display(description="trigger", ordering="trigger")
    def why(self, run: Run) -> str:
        """Say why it was executed."""
        return run.get_trigger_display()

    @admin.display(description="version", ordering="checkpoint__version")
    def checkpoint_link(self, run: Run) -> str:
        """Lead to the version."""
        return link(run.checkpoint, f"v{run.checkpoint.version}" if run.checkpoint else None)

    @admin.display(description="took")
    def took(self, run: Run) -> str:
        """Say how long the execution took."""
        seconds = run.timings.get("total")
        return NOTHING if seconds is None else f"{seconds:.2f} s"

    @admin.display(description="in", ordering="runner")
    def kind_of_sandbox(self, run: Run) -> str:
        """Name the kind of sandbox in a word."""
        return sandbox_badge(run.runner)

    @admin.display(description="ran in")
    def ran_in(self, run: Run) -> str:
        """Name the kind of sandbox, and warn of the one for development."""
        return sandbox(run.runner)

    @admin.display(description="ran on")
    def ran_on(self, run: Run) -> str:
        """Name the worker that executed it, which may be gone."""
        return inline(run.host) if run.host else NOTHING

    @admin.display(description="input")
    def asked(self, run: Run) -> str:
        """Show the question, the code, the edits, or the names of the files."""
        if run.kind == RunKind.ASK:
            return inline(run.input["question"])
        if run.input.get("code"):
            return source(run.input["code"])
        if run.input.get("edits"):
            return show_edits(run.input["edits"])
        if run.input.get("files"):
            return lines(inline(path) for path in run.input["files"])
        return "the constraints of the version" if run.kind == RunKind.CONSTRAINTS else NOTHING

    @admin.display(description="output")
    def result(self, run: Run) -> str:
        """Show what came out: findings, a value, or what the gate said."""
        output = run.output
        if not isinstance(output, dict):
            return NOTHING
        if run.kind == RunKind.CONSTRAINTS:
            found = [_constraint(said) for said in output.get("constraints", [])]
            left = [one for one in output.get("workspace", []) if not one["applies"]]
            return lines([*found, *map(_not_applying, left)])
        if run.kind == RunKind.QUERY:
            return _value(run, output)
        if run.kind == RunKind.ASK:
            return _answer(run, output)
        accepted = output.get("version")
        return format_html(
            "{}{}{}",
            format_html("<div>became v{}</div>", accepted) if accepted else "",
            gate(output.get("verdict")),
            pretty(output["import"]) if output.get("import") else "",
        )

    @admin.display(description="error")
    def failure(self, run: Run) -> str:
        """Show what went wrong."""
        return problem(run.error)

    @admin.display(description="printed")
    def printed(self, run: Run) -> str:
        """Show the end of what the code printed."""
        return preformatted(run.stdout)

    @admin.display(description="what it did")
    def did(self, run: Run) -> str:
        """Lead to the alerts that it opened, changed or resolved."""
        steps = AlertEvent.objects.filter(run=run).select_related("alert").order_by("seq")
        return lines(
            format_html(
                "{} {}",
                badge(step.kind, step.get_kind_display()),
                link(step.alert, shortened(str(step.alert))),
            )
            for step in steps[:100]
        )

    @admin.display(description="found last by it")
    def found(self, run: Run) -> str:
        """Lead to the alerts whose last finding is this run's."""
        number = run.alerts.count()
        if not number:
            return NOTHING
        return link_to_list(Alert, counted(number, "alert"), last_run__id__exact=run.pk)

    @admin.display(description="seconds by stage")
    def durations(self, run: Run) -> str:
        """Show where the time went."""
        return durations(run.timings)

    @admin.display(description="memory")
    def memory(self, run: Run) -> str:
        """Show how much memory the code took at its peak."""
        return NOTHING if run.memory_bytes is None else filesizeformat(run.memory_bytes)

    @admin.display(description="raw input")
    def raw_input(self, run: Run) -> str:
        """Show the input as it is stored."""
        return pretty(run.input)

    @admin.display(description="raw output")
    def raw_output(self, run: Run) -> str:
        """Show the output as it is stored."""
        return pretty(run.output)


def _not_applying(standing: Mapping[str, Any]) -> SafeString:
    """Say why a constraint of the workspace did not run."""
    why = "; ".join(standing["reasons"])
    return format_html("{} {}: {}", badge("not run"), inline(standing["path"]), inline(why))


def _constraint(said: Mapping[str, Any]) -> SafeString:
    """Show what one constraint said, or why it failed."""
    title = format_html("{}, {} s", inline(said["path"]), f"{said['seconds']:.3f}")
    if said["error"]:
        return format_html("{} {}{}", badge("failed"), title, problem(said["error"]))
    if not said["alerts"]:
        return format_html("{} {}", badge("ok", "silent"), title)
    findings = lines(
        format_html("{} {}", badge(alert["severity"]), inline(shortened(alert["message"])))
        for alert in said["alerts"]
    )
    number = badge("note", counted(len(said["alerts"]), "finding"))
    return folded(format_html("{} {}", number, title), findings, unfold=len(said["alerts"]) <= 10)


def _value(run: Run, output: Mapping[str, Any]) -> SafeString:
    """What was computed, and on which records it rests."""
    value = format_html("{}{}", inline(str(output.get("type"))), pretty(output.get("value")))
    evidence = output.get("evidence")
    if not evidence:
        return value
    shown = evidence["records"][:SHOWN_EVIDENCE]
    named = [inline(f"{one['domain']}.{one['collection']} {one['key']!r}") for one in shown]
    if (rest := evidence["count"] - len(shown)) > 0:
        named.append(format_html("and {} more", rest))
    return format_html(
        "{}<div>Rests on records that are {}: {}</div>{}{}",
        value,
        SCOPES.get(evidence["scope"], evidence["scope"]),
        evidence["count"],
        lines(named),
        links_to_entries(run.user, (seq for one in shown for seq in one["sources"])),
    )


def _answer(run: Run, output: Mapping[str, Any]) -> SafeString:
    """What a language model's query has computed, or why the answer is not known."""
    reason = format_html("<div>{}</div>", inline(output["reason"])) if output["reason"] else ""
    if not output["known"]:
        return format_html("not known{}", reason)
    query = link_to_key(Run, output["query"], "the query")
    return format_html("{}{}{}{}", _value(run, output), reason, source(output["code"]), query)
