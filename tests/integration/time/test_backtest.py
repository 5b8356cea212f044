"""A backtest finds what really happens on the same history, and is what an approval rests on."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import time_machine

from memory import backtests, log, workspace_constraints
from memory.log import Draft
from memory.models import (
    Alert,
    AlertEvent,
    Backtest,
    BacktestFinding,
    MemoryUser,
    Workspace,
    WorkspaceConstraintVersion,
)
from memory.models.log import EntryKind
from memory.users import create_user
from tests.integration.work.test_workspace_constraints import SOURCE, TESTS
from workers import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]
DAY = datetime.timedelta(days=1)
# 10:00 in Berlin; the daily hour, 06:00, is 05:00 UTC in winter and 04:00 in summer.
START = datetime.datetime(2027, 3, 1, 9, tzinfo=datetime.UTC)
END = START + 30 * DAY

NOTICE = SOURCE.replace(
    """\
        if lease.ends_on < today:
            yield warning(f"{lease.flat} ended on {lease.ends_on}", evidence=[lease])
""",
    """\
        left = (lease.ends_on - today).days
        if 0 <= left <= 10:
            severity = critical if left <= 3 else warning
            yield severity(f"{left} days are left", evidence=[lease])
""",
).replace("Record, warning", "Record, critical, warning")


def rental(key: str, until: str, **more: Any) -> dict[str, Any]:
    data = {"flat": key, "until": until}
    return {"domain": "home", "type": "Rental", "key": key, "data": data, **more}


def plant(name: str) -> dict[str, Any]:
    return {"domain": "garden", "type": "Plant", "data": {"name": name}}


# On which day of the history what is said.
HISTORY: Mapping[int, list[dict[str, Any]]] = {
    0: [rental("main", "2027-03-20"), rental("side", "2027-03-15")],
    3: [plant("fern")],
    8: [rental("late", "2027-03-11")],
    12: [rental("side", "2027-04-08"), plant("rose")],
    13: [rental("late", "2027-03-11", retired=True)],
    15: [plant("oak")],
    21: [rental("main", "2027-03-25")],
}


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    with time_machine.travel(START - DAY):
        return create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)


def passed(workspace: Workspace, source: str = NOTICE) -> WorkspaceConstraintVersion:
    """A version as if it had passed its checks."""
    constraint = workspace_constraints.create(
        workspace, "lease_end", source=source, tests=TESTS, by="test"
    )
    constraint.versions.update(state="passed")
    return constraint.versions.get()


def tell(user: MemoryUser, *statements: dict[str, Any]) -> None:
    drafts = [Draft(kind=EntryKind.RECORD, data=data) for data in statements]
    log.append(user, drafts, source="test")


def live_through(user: MemoryUser, work: Work, days: int = 30) -> None:
    """Let the days go by from beat alone, on which things are said."""
    for number in range(days + 1):
        with time_machine.travel(START + number * DAY, tick=False):
            if number:
                with time_machine.travel(START.replace(hour=5) + number * DAY, tick=False):
                    dispatching.queue_runs_by_the_clock()
                    work()
            if number in HISTORY:
                tell(user, *HISTORY[number])
                work()


def what_happened(user: MemoryUser) -> list[tuple[Any, ...]]:
    found = []
    for event in AlertEvent.objects.filter(alert__user=user).order_by("seq"):
        day = event.at.date().isoformat()
        found.append((day, event.kind, event.alert.fingerprint))
    return sorted(found)


def what_was_found(backtest: Backtest) -> list[tuple[Any, ...]]:
    found = []
    for one in BacktestFinding.objects.filter(result__backtest=backtest):
        found.append((one.opened_at.date().isoformat(), "opened", one.fingerprint))
        found += [(step["at"][:10], "changed", one.fingerprint) for step in one.changes]
        if one.resolved_at:
            found.append((one.resolved_at.date().isoformat(), "resolved", one.fingerprint))
    return sorted(found)


def test_it_finds_what_really_happens_on_the_same_history(
    workspace: Workspace, user: MemoryUser, work: Work
) -> None:
    # Given a version that nobody has yet, and a constraint of the same text that everybody has
    version = passed(workspace)
    constraint = version.constraint
    backtest_of = WorkspaceConstraintVersion.objects.get(pk=version.pk)
    workspace_constraints.approve(version, by="boss")  # nobody has a project yet
    workspace_constraints.change(constraint, by="boss", percentage=100)
    live_through(user, work)
    assert Alert.objects.filter(user=user).count() == 5

    with time_machine.travel(END + datetime.timedelta(hours=1), tick=False):
        backtest = backtests.start(backtest_of, by="test")
        work()

    assert what_was_found(backtest) == what_happened(user)
