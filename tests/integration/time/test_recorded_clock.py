"""Recorded cases, told as typed records; after that, only the clock makes constraints fire.

The conflicts of `active_service.jsonl` hold from the checkpoint that causes them; its deadlines,
like those of `scenarios.jsonl`, come near while nothing is appended.
"""

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import time_machine

from benchmarks.harness import data_file
from memory.alerts.models.alerts import Alert, AlertEvent
from memory.constraints import constraint_library, workspace_constraints
from memory.constraints.models.workspace_constraints import VersionState
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.versions.models.runs import Run, RunKind, RunOutcome
from tests.library_scenarios import RETELLINGS, Day, Entry
from tests.steps import append_records
from workers.service import dispatching

CASES, SCENARIOS = data_file("active_service.jsonl"), data_file("scenarios.jsonl")
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        CASES is None or SCENARIOS is None,
        reason="UAC_DATA_DIR does not hold active_service.jsonl and scenarios.jsonl",
    ),
]

Work = Callable[[], None]

# From a week before its last day on, until that day.
NOTICE = '''\
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uac import Alert, Record, warning

ALSO = {
    "Deadline": ("Warranty", "TaxFiling", "Lease", "DriversLicense", "PromotionalRate"),
    "Deadline.title": ("product", "name"),
    "Deadline.due_on": ("expires_on", "ends_on"),
}

@dataclass(kw_only=True)
class Deadline(Record):
    title: str
    due_on: datetime.date
    notice_days: int = 0

def check(today: datetime.date, deadlines: Sequence[Deadline]) -> Iterator[Alert]:
    """A deadline is a week off, or less."""
    for one in deadlines:
        last = one.due_on - datetime.timedelta(days=one.notice_days)
        left = (last - today).days
        if 0 <= left <= 7:
            yield warning(
                f"{one.title}: give notice or renew by {last}, {left} days left", evidence=[one]
            )
'''
CONFLICTS = ("document_validity", "double_booking")
# Days after its trigger when a conflict is over: its day has passed, or it was withdrawn.
OVER = {"travel_03": 28, "travel_07": 1, "schedule_01": 7, "schedule_02": 5, "schedule_06": 1}
TAKEN_BACK = {"travel_07": ("Trip", "plan"), "schedule_06": ("Appointment", "plumber")}
NOON = datetime.time(12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@dataclass
class Case:
    """A recorded case: its entries by day, and the days between which an alert is expected."""

    name: str
    said: dict[datetime.date, list[dict[str, Any]]]
    due: datetime.date
    over: datetime.date
    rubric: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_deadline(self) -> bool:
        return self.name.startswith("deadline")


def recorded() -> list[Case]:
    """Return the cases of both files, each once."""
    found: dict[str, Case] = {}
    for path in filter(None, (CASES, SCENARIOS)):
        for raw in map(json.loads, path.read_text().splitlines()):
            name, sessions = raw.get("case_id") or raw["id"], raw["sessions"]
            if name not in found and (path == CASES or name.startswith("deadline")):
                last = raw.get("trigger_session_id") or sessions[-1]["session_id"]
                found[name] = case_of(name, sessions, last)
                found[name].rubric = raw.get("rubric_required", {})
    return list(found.values())


def case_of(name: str, sessions: Sequence[Mapping[str, Any]], trigger: str) -> Case:
    """Return a case as it is retold.

    Of a deadline, these are only the entries before the trigger's session.
    """
    case = Case(name, {}, datetime.date.min, datetime.date.min)
    for session in sessions:
        day = datetime.date.fromisoformat(session["date"])
        told = RETELLINGS[name].sessions.get(session["session_id"], [])
        if session["session_id"] != trigger or not case.is_deadline:
            # An issue is no deadline, and would be a record of another class.
            entries = [statement(one, day) for one in told if one[0] != "Issue"]
            case.said |= {day: entries} if entries else {}
    if case.is_deadline:
        ((entry,),) = case.said.values()
        data = entry["data"]
        (last,) = [data[one] for one in ("expires_on", "ends_on", "due_on") if one in data]
        notice = datetime.timedelta(days=data.get("notice_days", 0))
        case.due = datetime.date.fromisoformat(last) - notice - 7 * DAY
        case.over = case.due + 8 * DAY
    else:
        case.due = max(case.said)
        case.over = case.due + OVER[name] * DAY
        if name in TAKEN_BACK:
            kind, key = TAKEN_BACK[name]
            case.said[case.over] = [{"domain": "life", "type": kind, "key": key, "retired": True}]
    return case


def statement(entry: Entry, session: datetime.date) -> dict[str, Any]:
    kind, key, data = entry
    told = {name: one.of(session) if isinstance(one, Day) else one for name, one in data.items()}
    return {"domain": "life", "type": kind, "key": key, "data": told}


def enable(workspace: Workspace, name: str, source: str) -> None:
    """Enable a constraint for all users; the library's own tests have judged it."""
    constraint = workspace_constraints.create(
        workspace, name, source=source, tests="# judged elsewhere\n", by="test"
    )
    constraint.versions.update(state=VersionState.PASSED)
    workspace_constraints.approve(constraint.versions.get(), by="boss")
    workspace_constraints.change(constraint, by="boss", percentage=100)


def live(user: MemoryUser, case: Case, settled: Work, *, every_day: bool = False) -> None:
    """Let the time pass: entries are appended at noon, and beat ticks when it is due."""
    for at, entries in times(user, case, every_day=every_day):
        with time_machine.travel(at, tick=False):
            if entries:
                append_records(user, *entries)
            else:
                dispatching.dispatch()
            settled()


def times(
    user: MemoryUser, case: Case, *, every_day: bool
) -> Iterator[tuple[datetime.datetime, list[dict[str, Any]]]]:
    """Yield each moment at which something happens, and the entries of that moment."""
    said = {datetime.datetime.combine(day, NOON): one for day, one in case.said.items()}
    end = datetime.datetime.combine(case.over + 3 * DAY, NOON)
    at = min(said)
    while at < end:
        yield at, said.pop(at, [])
        user.refresh_from_db()
        coming = [end, *said, *([at + DAY] if every_day else [])]
        if user.constraints_due_at is not None:  # else there is nothing to run yet
            coming.append(user.constraints_due_at + datetime.timedelta(seconds=1))
        at = min(coming)


def person(workspace: Workspace, case: Case) -> MemoryUser:
    """A user of that time, in a workspace with the constraints of the case."""
    with time_machine.travel(datetime.datetime.combine(min(case.said), NOON) - DAY, tick=False):
        if case.is_deadline:
            enable(workspace, "notice", NOTICE)
        else:
            for name in CONFLICTS:
                enable(workspace, name, constraint_library.read(name).source)
        return create_user(workspace, case.name, time_zone="UTC", metadata=None)


def events(user: MemoryUser) -> list[tuple[str, datetime.date]]:
    """Return what happened to alerts, and when, without escalations to the staff."""
    found = AlertEvent.objects.filter(alert__user=user).exclude(kind="escalated").order_by("seq")
    return [(event.kind, event.at.date()) for event in found]


RECORDED = recorded()


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_the_alert_comes_on_its_day_and_goes_when_its_cause_does(
    workspace: Workspace, case: Case, settled: Work
) -> None:
    user = person(workspace, case)

    live(user, case, settled)

    told = [one for one in events(user) if one[0] != "changed"]  # one conflict becomes critical
    assert told == [("opened", case.due), ("resolved", case.over)]
    alert = Alert.objects.get()
    for group, patterns in case.rubric.items() if case.is_deadline else ():
        assert any(re.search(one, alert.message, re.IGNORECASE) for one in patterns), group
    runs = Run.objects.filter(user=user, kind=RunKind.CONSTRAINTS)
    assert {run.outcome for run in runs} == {RunOutcome.OK}
    # The entries, the clock's runs, and a new forecast at half of the horizon.
    assert runs.count() <= len(case.said) + 4
