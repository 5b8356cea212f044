"""The admin's query console, which runs Python queries on one user's memory."""

import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from memory.kernel import instants, pauses
from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.display import badge, preformatted, problem, sandbox, source, visible
from memory.kernel.admin.links import page_url
from memory.kernel.admin.reloading import look_again
from memory.kernel.admin.source import marks
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import one_line
from memory.kernel.users import refuse_merged
from memory.recall import queries
from memory.versions import past_states
from memory.versions.admin.run_display import failed_lines, limit_of, show_answer
from memory.versions.admin.schema import names_in, schema_of
from memory.versions.admin.staff_runs import REFUSED, asked_run, wait_a_little
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus

# If a query's evaluation time is at least this far from the time when the query was submitted, the
# form shows the evaluation day.
NOW = datetime.timedelta(minutes=1)
# Maximum number of the staff member's past queries listed, and of versions to choose from.
MAX_HISTORY = 20
MAX_VERSIONS = 50


class QueryForm(forms.Form):
    """The form for a query, the version that it reads and its evaluation time."""

    code = forms.CharField(
        strip=False,
        max_length=queries.MAX_CODE,
        label="Query",
        help_text="Python: an expression, or statements that end with one; what is only printed is"
        " no value. Your queries are stored with your name.",
        error_messages={
            "required": "Write a query: an expression, or statements that end with one."
        },
    )
    as_of = forms.CharField(required=False, max_length=100)
    at = forms.CharField(required=False, max_length=100)

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"]).replace("\r\n", "\n")
        if not code.strip():
            raise forms.ValidationError(self.fields["code"].error_messages["required"])
        return code


def console(request: HttpRequest, user: MemoryUser, context: dict[str, Any]) -> HttpResponse:
    """Return a user's query console page; the URL parameter `run` selects the run to show.

    If a query was posted, run it. The caller must check `may_ask`.
    """
    if request.method == "POST":
        form = QueryForm(_with_python_line_ends(request))
        run = _run_query(request, user, form)
        if run is not None:
            wait_a_little(run)
            return redirect(f"{console_url(user)}?run={run.pk}")
        shown = None
    else:
        shown = asked_run(request, user, _queries(user))
        form = QueryForm(initial=_initial(shown) if shown else None)
    schema = schema_of(user.head)
    return TemplateResponse(
        request,
        "admin/memory/console.html",
        {
            **context,
            "form": form,
            "code": visible(str(form["code"].value() or "")),
            "standing": _standing(user),
            "versions": _versions(user, str(form["as_of"].value() or "")),
            "chosen": str(form["as_of"].value() or ""),
            "day": str(form["at"].value() or ""),
            "schema": schema,
            "names": names_in(schema),
            "example": _example(schema),
            "history": _history(request, user),
            **look_again(request),
            **(_result(shown, request) if shown else {}),
        },
        status=400 if form.errors else 200,
    )


def console_url(user: MemoryUser) -> str:
    """Return the URL of a user's console."""
    return reverse("admin:memory_memoryuser_console", args=[user.pk])


def _with_python_line_ends(request: HttpRequest) -> dict[str, str]:
    """Return the posted fields, with LF line endings in the code; browsers send CR LF."""
    posted = {name: request.POST.get(name, "") for name in QueryForm.base_fields}
    return {**posted, "code": posted["code"].replace("\r\n", "\n")}


def _run_query(request: HttpRequest, user: MemoryUser, form: QueryForm) -> Run | None:
    """Start the posted query; if it is rejected, return None and let the form show why."""
    if not form.is_valid():
        return None
    data = form.cleaned_data
    try:
        refuse_merged(user)
        snapshot = (
            past_states.read_as_of(user, data["as_of"]) if data["as_of"] else past_states.now(user)
        )
        at = data["at"] or (snapshot.moment or localtime()).isoformat()
        instant = instants.span_of(user, at).last
        return queries.queue(snapshot, data["code"], instant, staff=staff_of(request))
    except instants.BadMoment as error:
        form.add_error(None, visible(str(error)))
    except REFUSED as error:
        form.add_error(None, visible(str(error)))
    return None


def _standing(user: MemoryUser) -> str:
    """Return why this user's memory can't be queried, or "" if it can."""
    try:
        refuse_merged(user)
        past_states.version_of(past_states.now(user))
    except REFUSED as error:
        return visible(str(error))
    return ""


def _queries(user: MemoryUser) -> QuerySet[Run]:
    rows = Run.objects.filter(user=user, kind=RunKind.QUERY)
    return defer_large(rows, "checkpoint", keep=Run.LARGE)


def _initial(run: Run) -> dict[str, str]:
    as_of = run.input.get("as_of")
    version = run.checkpoint.version if run.checkpoint else None
    return {
        "code": run.input.get("code", ""),
        "as_of": f"v{version}" if as_of and version else "",
        "at": "" if abs(run.instant - run.queued_at) < NOW else _day(run),
    }


def _day(run: Run) -> str:
    """Return the query's evaluation day in the user's time zone."""
    return run.instant.astimezone(ZoneInfo(run.user.time_zone)).date().isoformat()


def _result(run: Run, request: HttpRequest) -> dict[str, Any]:
    """Return the template context for showing a query and its result."""
    common: dict[str, Any] = {
        "run_url": page_url(run),
        "run_key": run.pk,
        "waits": run.status != RunStatus.DONE,
        "version": run.checkpoint.version if run.checkpoint else None,
        "instant": run.instant,
    }
    if run.status != RunStatus.DONE:
        paused = pauses.find_pause(run.user) is not None
        return {**common, "outcome": _outcome(run), "waits": not paused, "paused": paused}
    seconds = run.timings.get("total")
    failed = failed_lines(run)
    return {
        **common,
        "outcome": _outcome(run),
        "took": None if seconds is None else f"{seconds:.2f} s",
        "answer": show_answer(run) if run.output else "",
        "error": problem(run.error) if run.error else "",
        "where": source(run.input.get("code", ""), marked=failed) if failed else "",
        "marks": marks((line, str((run.error or {}).get("message", ""))) for line in failed),
        "limit": limit_of(run),
        "printed": preformatted(run.stdout) if run.stdout else "",
        "sandbox": sandbox(run.runner) if run.runner == "process" else "",
    }


def _outcome(run: Run) -> SafeString:
    if run.status != RunStatus.DONE:
        return badge(run.status, run.get_status_display())
    # The default label blames the user's code, but a staff member wrote this query.
    own = run.outcome == RunOutcome.USER_ERROR
    return badge(run.outcome, "error in the query" if own else run.get_outcome_display())


def _history(request: HttpRequest, user: MemoryUser) -> list[dict[str, Any]]:
    """Return this staff member's latest queries on this user's memory."""
    own = Run.objects.filter(user=user, asked_by=staff_of(request), kind=RunKind.QUERY)
    rows = defer_large(own.exclude(asked_by=""), keep=["input"])
    return [
        {
            "url": f"{console_url(user)}?run={run.pk}",
            "code": one_line(run.input.get("code", "(redacted)"), 80),
            "outcome": _outcome(run),
            "at": run.queued_at,
        }
        for run in rows.order_by("-queued_at")[:MAX_HISTORY]
    ]


def _versions(user: MemoryUser, chosen: str) -> list[tuple[str, str]]:
    """Return the newest versions, plus the chosen one if it is older."""
    rows = Checkpoint.objects.filter(user=user).order_by("-version")
    choices = [
        (f"v{version}", f"v{version}, {date_format(localtime(at), 'DATETIME_FORMAT')}")
        for version, at in rows.values_list("version", "created_at")[:MAX_VERSIONS]
    ]
    if chosen and chosen not in dict(choices):
        choices.append((visible(chosen), visible(chosen)))
    return choices


def _example(schema: list[dict[str, Any]]) -> str:
    """Return an example query that yields a value."""
    holders = [holder for one in schema for holder in one["holders"]]
    names = [holder["name"] for holder in holders if holder["count"] != "one"]
    return f"len({names[0]})" if names else "1 + 1"
