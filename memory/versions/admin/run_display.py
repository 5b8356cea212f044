"""Display of a run: its input, its result, the limit that ended it and its stages."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    folded,
    inline,
    lines,
    pretty,
    problem,
    shortened,
    source,
)
from memory.kernel.admin.links import link, link_to_key
from memory.kernel.settings import environment, sandbox_limits
from memory.kernel.texts import REDACTED
from memory.log.admin.links import links_to_entries
from memory.project import RecordId
from memory.versions.admin.edits import show_edits
from memory.versions.admin.results import Stage, show_value
from memory.versions.admin.verdicts import gate
from memory.versions.models.checkpoints import RecordLocation
from memory.versions.models.runs import BY_MODEL, Run, RunKind, RunOutcome

# Maximum number of records shown as evidence for an answer.
SHOWN_EVIDENCE = 20
# With more records than this, the evidence is folded.
UNFOLDED_EVIDENCE = 8
# The limits that can cause each outcome.
LIMITS_OF = {
    RunOutcome.TIMEOUT: ("wall_seconds", "cpu_seconds", "total_seconds"),
    RunOutcome.OUT_OF_MEMORY: ("process_memory_mib", "memory_mib"),
    RunOutcome.OUTPUT_LIMIT: ("output_kib",),
    RunOutcome.RESULT_LIMIT: ("result_kib", "result_depth"),
}
# Display names of the stages that the workers time.
STAGES = {
    "load": "loaded the project into a sandbox",
    "evaluate": "ran the query",
    "constraints": "ran the constraints",
    "types": "checked the types",
    "compile": "compiled the files",
}
QUERY_PATH = "<query>"
SCOPES = {"value": "in the value", "selected": "selected by the code", "read": "read by the code"}


def show_input(run: Run) -> SafeString | str:
    """Show a run's input: a question, code, edits or file names."""
    if run.kind in BY_MODEL:
        return inline(run.input.get("question", REDACTED))
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
        return inline(run.input.get("constraint", REDACTED))
    if run.input.get("edits"):
        return format_html("<div>{}</div>{}", _describe_trial(run), show_edits(run.input["edits"]))
    if run.input.get("files"):
        return lines(inline(path) for path in run.input["files"])
    if run.kind == RunKind.CONSTRAINTS:
        return "all constraints in this version"
    return _describe_trial(run) or NOTHING


def show_result(run: Run) -> SafeString | str:
    """Show a run's result: findings, a value or the gate's verdict."""
    output = run.output
    if not isinstance(output, dict):
        return NOTHING
    if run.kind == RunKind.CONSTRAINTS:
        rows = [_constraint(result) for result in output.get("constraints", [])]
        left = [one for one in output.get("workspace", []) if not one["applies"]]
        return lines([*rows, *map(_not_applying, left)])
    if run.kind == RunKind.CONSTRAINT:
        return _show_trial(run, output)
    if run.kind == RunKind.QUERY:
        return _value(run, output)
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


def show_answer(run: Run) -> SafeString | str:
    """Show the result of a query, and its evidence."""
    return _value(run, run.output) if isinstance(run.output, dict) else NOTHING


def limit_of(run: Run) -> SafeString | str:
    """Return the limit that ended a run, with its current value, or "" if no limit ended it."""
    names = LIMITS_OF.get(RunOutcome(run.outcome), ()) if run.outcome else ()
    if run.outcome == RunOutcome.ALERT_LIMIT:
        most = run.user.workspace.alert_limits.alerts_per_constraint
        return f"alerts_per_constraint: {most} (current value)"
    own = run.user.workspace.overrides(environment.SANDBOXES)
    holds = sandbox_limits.effective(own) if names else None
    return (
        lines(
            f"{name}: {sandbox_limits.LIMITS[name].amount(getattr(holds, name))} (current value)"
            for name in names
        )
        if names
        else ""
    )


def failed_lines(run: Run) -> list[int]:
    """Return a list with the line the query failed on, or an empty list if it is unknown."""
    error = run.error or {}
    return [error["line"]] if error.get("path") == QUERY_PATH and error.get("line") else []


def stages(run: Run) -> list[Stage]:
    """Return the stages of a run: waiting, each timed step, and storing."""
    if run.started_at is None and not run.timings:
        return []
    began = run.started_at or run.queued_at
    waited = max((began - run.queued_at).total_seconds(), 0.0)
    tries = f" ({counted(run.attempts, 'attempt')})" if run.attempts > 1 else ""
    shown = [Stage(f"waited{tries}", 0.0, waited)]
    timed = {name: seconds for name, seconds in run.timings.items() if name != "total"}
    total = run.timings.get("total", sum(timed.values()))
    at = waited
    for name, seconds in timed.items():
        shown.append(Stage(STAGES.get(name, name), at, seconds))
        at += seconds
    if (rest := waited + total - at) > 0.0005:
        shown.append(Stage("other work" if timed else "executed", at, rest))
        at += rest
    if run.finished_at is not None:
        end = (run.finished_at - run.queued_at).total_seconds()
        if end - at > 0.0005:
            shown.append(Stage("claimed and stored", at, end - at))
    return shown


def _describe_trial(run: Run) -> str:
    """Describe a dry run of a proposal; without edits, a dry run reports the version's findings."""
    if not run.input.get("dry_run"):
        return ""
    return "test run: nothing is stored" if run.input.get("edits") else "the version's findings"


def _show_trial(run: Run, output: Mapping[str, Any]) -> SafeString | str:
    """Show the findings from a constraint's trial, or why the constraint does not apply."""
    if not output["applies"]:
        return _not_applying({"path": output["constraint"], "reasons": output["reasons"]})
    if output["alerts"]:
        return _findings("", output["alerts"])
    return badge("ok", "no alerts") if run.outcome == RunOutcome.OK else NOTHING


def _not_applying(standing: Mapping[str, Any]) -> SafeString:
    """Show why a workspace constraint did not run."""
    why = "; ".join(standing["reasons"])
    return format_html("{} {}: {}", badge("not executed"), inline(standing["path"]), inline(why))


def _constraint(result: Mapping[str, Any]) -> SafeString:
    """Show one constraint's alerts, or why the constraint failed."""
    title = format_html("{}, {} s", inline(result["path"]), f"{result['seconds']:.3f}")
    if result["error"]:
        return format_html("{} {}{}", badge("failed"), title, problem(result["error"]))
    if not result["alerts"]:
        return format_html("{} {}", badge("ok", "no alerts"), title)
    return _findings(title, result["alerts"])


def _findings(title: SafeString | str, alerts: Sequence[Mapping[str, Any]]) -> SafeString:
    """Show a constraint's alerts, folded under a title that says how many there are."""
    number = badge("note", counted(len(alerts), "finding"))
    details = lines(
        format_html("{} {}", badge(alert["severity"]), inline(shortened(alert["message"])))
        for alert in alerts
    )
    return folded(format_html("{} {}", number, title), details, unfold=len(alerts) <= 10)


def _value(run: Run, output: Mapping[str, Any]) -> SafeString:
    """Show the computed value, and the records it is based on."""
    value = format_html(
        '<div class="quiet">{}</div>{}',
        inline(str(output.get("type"))),
        show_value(output.get("value"), run.user),
    )
    evidence = output.get("evidence")
    if not evidence:
        return value
    records = [
        (RecordId(one["domain"], one["collection"], key), sources)
        for one in evidence["records"]
        for key, sources in zip(one["keys"], one["sources"], strict=True)
    ]
    shown = records[:SHOWN_EVIDENCE]
    rows = RecordLocation.objects.filter(user=run.user, key__in={one.key for one, _ in shown})
    pages = {RecordId(row.domain, row.collection, row.key): row for row in rows}
    named: list[SafeString | str] = [
        link(pages[one], name) if one in pages else inline(name)
        for one, _ in shown
        for name in (f"{one.domain}.{one.collection} {one.key!r}",)
    ]
    if (rest := evidence["count"] - len(shown)) > 0:
        named.append(format_html("and {} more", rest))
    rests = format_html(
        "Based on {} {}",
        counted(evidence["count"], "record"),
        SCOPES.get(evidence["scope"], evidence["scope"]),
    )
    entries = links_to_entries(run.user, (seq for _, sources in shown for seq in sources))
    for one in evidence.get("set_aside", ()):
        where = f"{one['domain']}.{one['collection']}.{one['field']}"
        template = "{} of {} set aside and not counted: {}"
        named.append(
            format_html(
                template, counted(one["count"], "value"), where, inline(", ".join(one["keys"]))
            )
        )
    # The value already shows its own records with their entries, so this evidence stays folded.
    unfold = evidence["scope"] != "value" and len(shown) <= UNFOLDED_EVIDENCE
    return format_html(
        "{}{}",
        value,
        folded(rests, format_html("{}{}", lines(named), entries), unfold=unfold),
    )


def _answer(run: Run, output: Mapping[str, Any]) -> SafeString:
    """Show the answer that a language model's query has computed, or why the answer is unknown."""
    reason = format_html("<div>{}</div>", inline(output["reason"])) if output["reason"] else ""
    if not output["known"]:
        return format_html("not known{}", reason)
    query = link_to_key(Run, output["query"], "the query")
    return format_html("{}{}{}{}", _value(run, output), reason, source(output["code"]), query)
