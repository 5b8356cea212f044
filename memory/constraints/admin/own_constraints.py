"""The admin page where staff write, change and delete one user's own constraints.

As in the API, a change is a proposal: the gate judges it, and an accepted change becomes a version.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from memory.alerts import failing_constraints
from memory.alerts.admin.links import links_to_alerts
from memory.alerts.models.alerts import LIVE_STATES, Alert, found_by
from memory.constraints import backtests
from memory.constraints.admin.backtests import show_dry_run
from memory.constraints.models.backtests import Backtest
from memory.kernel import pauses
from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.display import badge, problem, visible
from memory.kernel.admin.links import page_url
from memory.kernel.admin.reloading import look_again
from memory.kernel.admin.rows import may_see, rows_for
from memory.kernel.admin.source import marks
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import access
from memory.kernel.users import refuse_merged
from memory.project import EditError, Outline
from memory.project.names import check_lower_name
from memory.project.paths import constraint_name, constraint_path, constraint_tests_path
from memory.versions import checkpoints, past_states
from memory.versions.admin import staff_runs
from memory.versions.admin.schema import names_in, schema_of
from memory.versions.admin.staff_runs import REFUSED, asked_run, wait_a_little
from memory.versions.admin.verdicts import gate, refused_lines
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus

MAX_SOURCE = 64 * 1024
_NEW = {
    "name": "my_rule",
    "source": '''\
import datetime
from collections.abc import Iterator

from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    """Describe in one line what must not happen."""
    for one in []:
        if False:  # the condition that must not occur
            yield warning(f"{one.key} …", evidence=[one])
''',
    "tests": """\
import datetime

from constraints import my_rule
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def test_fires() -> None:
    assert len(run_check(my_rule, today=TODAY)) == 1


def test_does_not_fire() -> None:
    assert run_check(my_rule, today=TODAY) == []
""",
    "seen": "",
}


class OwnConstraintForm(forms.Form):
    """The form for a constraint and its tests; `seen` is the hash of the source being changed."""

    name = forms.CharField(
        max_length=100,
        help_text="Use lower case. The tests import the constraint by this name.",
    )
    source = forms.CharField(
        strip=False,
        max_length=MAX_SOURCE,
        help_text="A module with a function check(today) that yields alerts about this user's"
        " records.",
    )
    tests = forms.CharField(
        strip=False,
        max_length=MAX_SOURCE,
        help_text="At least one test in which the constraint fires, and one in which it does not.",
    )
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        try:
            check_lower_name(name, "constraint")
        except EditError as error:
            raise forms.ValidationError(visible(str(error))) from None
        return name


def page(request: HttpRequest, user: MemoryUser, context: dict[str, Any]) -> HttpResponse:
    """Return the page for one constraint.

    The URL parameter `name` opens an existing constraint, and `run` shows the result of a proposal.
    A posted form becomes a proposal or, by the button "Dry run", a backtest of its source. The
    caller must check `may_write`.
    """
    run, trial = None, None
    if request.method == "POST":
        form = OwnConstraintForm({name: request.POST.get(name, "") for name in _FIELDS})
        if "try" in request.POST:
            trial, proposal = _tried(request, user, form), None
        else:
            proposal = _proposed(request, user, form)
        if proposal is not None:
            wait_a_little(proposal)
            return redirect(own_constraint_url(user, run=str(proposal.pk)))
    else:
        proposals = Run.objects.filter(user=user, kind=RunKind.PROPOSAL)
        run = asked_run(request, user, proposals)
        form = OwnConstraintForm(initial=_initial(request, user, run))
    names = list(map(constraint_name, backtests.own_constraints(user.head)))
    name = str(form["name"].value() or "")
    failing = _failing(user)
    page_context = {
        **context,
        "user_key": user.pk,
        "new_url": own_constraint_url(user),
        "form": form,
        "texts": [
            (form[key], visible(str(form[key].value() or "")), _marks(run, path_of(name)))
            for key, path_of in _TEXTS.items()
        ],
        "names": names_in(schema_of(user.head)),
        "trial": show_dry_run(trial) if trial else "",
        "name": visible(name),
        "exists": name in names,
        "standing": _standing(user),
        "failing": visible(failing.get(name, "")),
        "others": [
            (own_constraint_url(user, name=other), other, other in failing) for other in names
        ],
        **(_result(request, user, run) if run else {}),
    }
    status = 400 if form.errors else 200
    return TemplateResponse(
        request, "admin/memory/own_constraint.html", page_context, status=status
    )


# Each text, and the path at which the gate judges it.
_TEXTS = {"source": constraint_path, "tests": constraint_tests_path}
_FIELDS = ("name", *_TEXTS, "seen")


def own_constraint_url(user: MemoryUser, **query: str) -> str:
    """Return the URL of the page for a new constraint, for the constraint `name` or for a `run`."""
    address = reverse("admin:memory_memoryuser_constraint", args=[user.pk])
    return f"{address}?{urlencode(query)}" if query else address


def may_write(request: HttpRequest) -> bool:
    """Return whether a staff member may write users' constraints.

    This requires access to content and permission to create versions.
    """
    versions = admin.site.get_model_admin(Checkpoint)
    allowed: bool = versions.has_operate_permission(request)  # type: ignore[attr-defined]
    return allowed and access.sees_content(request.user)


def _proposed(request: HttpRequest, user: MemoryUser, form: OwnConstraintForm) -> Run | None:
    """Propose the form's constraint; if it is rejected, return None and let the form show why."""
    if "delete" in request.POST:
        del form.fields["source"], form.fields["tests"]
    if not form.is_valid():
        return None
    data = form.cleaned_data
    there = (user.head.tree if user.head else {}).get(constraint_path(data["name"]), "")
    if there != data["seen"]:
        form.add_error(None, _moved(data["name"], there, data["seen"]))
        return None
    edit: dict[str, Any] = {"op": "delete_constraint", "name": data["name"], "sources": []}
    if "delete" not in request.POST:
        source, tests = (data[key].replace("\r\n", "\n") for key in _TEXTS)
        edit |= {"op": "write_constraint", "source": source, "tests_source": tests}
    try:
        expects = {constraint_path(data["name"]): data["seen"]}
        return staff_runs.propose(user, [edit], expects=expects, staff=staff_of(request))
    except REFUSED as error:
        form.add_error(None, visible(str(error)))
        return None


def _tried(request: HttpRequest, user: MemoryUser, form: OwnConstraintForm) -> Backtest | None:
    """Start a backtest of the form's source; if it is refused, let the form show why."""
    if not form.is_valid():
        return None
    source = form.cleaned_data["source"].replace("\r\n", "\n")
    try:
        return backtests.start_own(
            user, form.cleaned_data["name"], by=staff_of(request), source=source
        )
    except (backtests.BadBacktest, *REFUSED) as error:
        form.add_error(None, visible(str(error)))
        return None


def _marks(run: Run | None, path: str) -> str:
    """Return the lines of a text that the gate refused, for the editor."""
    return marks(refused_lines((run.output or {}).get("verdict"), path)) if run else ""


def _moved(name: str, there: str, seen: str) -> str:
    if not there:
        return f"Nothing was changed: the user no longer has a constraint named {visible(name)}."
    if not seen:
        return (
            f"The user already has a constraint named {visible(name)}. Open that constraint"
            " to change it."
        )
    return (
        f"Nothing was written: the constraint {visible(name)} has changed since you opened it."
        " Open it again and repeat your change."
    )


def _standing(user: MemoryUser) -> str:
    """Return why constraints can't be written for this user, or "" if they can."""
    try:
        refuse_merged(user)
        past_states.refuse_being_redacted(user)
    except REFUSED as error:
        return visible(str(error))
    return ""


def _failing(user: MemoryUser) -> dict[str, str]:
    """Return the errors from the user's own failing constraints, keyed by constraint name."""
    if user.head is None or _standing(user):
        return {}
    return failing_constraints.describe_failures(
        failing_constraints.alerts_of(user), Outline.from_json(user.head.outline)
    )


def _initial(request: HttpRequest, user: MemoryUser, run: Run | None) -> dict[str, str]:
    """Return the form's initial values: a rejected proposal, an existing or a new constraint."""
    tree = user.head.tree if user.head else {}
    if run is not None and run.outcome != RunOutcome.OK:
        edit = _edit_of(run)
        if edit.get("op") == "write_constraint":
            return {
                "name": edit["name"],
                "source": edit["source"],
                "tests": edit["tests_source"],
                "seen": tree.get(constraint_path(edit["name"]), ""),
            }
    name = str(_edit_of(run).get("name", "")) if run else request.GET.get("name", "")
    if constraint_path(name) in tree and user.head is not None and not _standing(user):
        tests = constraint_tests_path(name)
        paths = [path for path in (constraint_path(name), tests) if path in tree]
        files = checkpoints.read_files(user.head, paths)
        return {
            "name": name,
            "source": files[constraint_path(name)],
            "tests": files.get(tests, ""),
            "seen": tree[constraint_path(name)],
        }
    if "name" in request.GET:
        raise Http404("This user has no such constraint.")
    return _NEW


def _edit_of(run: Run) -> dict[str, Any]:
    edits: list[dict[str, Any]] = run.input.get("edits") or [{}]  # a redacted run has no edits
    return edits[0]


def _result(request: HttpRequest, user: MemoryUser, run: Run) -> dict[str, Any]:
    """Return the template context for showing a proposal and its result."""
    result: dict[str, Any] = {"run_url": page_url(run), "run_key": run.pk}
    if run.status != RunStatus.DONE:
        paused = pauses.find_pause(user) is not None
        again = {} if paused else look_again(request)
        return {**result, "outcome": badge(run.status), "waits": True, "paused": paused, **again}
    output = run.output or {}
    version = output.get("version")
    versions = Checkpoint.objects.filter(user=user).only("pk", "version")
    made = versions.filter(version=version).first() if version else None
    accepted = run.outcome == RunOutcome.OK
    return {
        **result,
        "outcome": badge("passed", "accepted") if accepted else badge("failed", "refused"),
        "accepted": accepted,
        "version": version,
        "version_url": page_url(made) if made else "",
        "speaks": _speaks(request, user, made, run) if made else "",
        "verdict": gate(output.get("verdict")),
        "error": problem(run.error) if run.error else "",
    }


def _speaks(request: HttpRequest, user: MemoryUser, made: Checkpoint, run: Run) -> SafeString | str:
    """Link to the alerts from the constraint just accepted, for staff who may see alerts."""
    edit = _edit_of(run)
    if edit.get("op") != "write_constraint" or not may_see(request, Alert):
        return ""
    ran = Run.objects.filter(user=user, kind=RunKind.CONSTRAINTS, outcome=RunOutcome.OK)
    if not ran.filter(checkpoint__version__gte=made.version).exists():
        if pauses.find_pause(user) is not None:
            return "Work on this user is paused. The constraint will run when work is resumed."
        return "The constraint has not run on this version yet. Reload this page to see its alerts."
    live = rows_for(request, Alert).filter(
        found_by(constraint_path(edit["name"])), user=user, state__in=LIVE_STATES
    )
    if not live.exists():
        return "The constraint currently raises no alerts."
    return format_html("Current alerts from the constraint: {}", links_to_alerts(live))
