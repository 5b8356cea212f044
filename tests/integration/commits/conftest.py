"""Helpers of the checkpoint tests: typed entries and edits in, the project out."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, EntryOutcome
from memory.versions import checkpoints
from memory.versions.models.runs import Run
from tests import steps
from tests.constraints import make_rule
from tests.steps import head_of, not_none

Append = Callable[..., list[int]]
Propose = Callable[..., Run]
Records = Callable[[str], dict[str, Any]]
Say = Callable[..., list[int]]
Source = Callable[[str], str]
Work = Callable[[], None]

_BUDGET = make_rule(
    "budget",
    "travel.Trip",
    "trip.cost > 1000",
    "{trip.to} costs {trip.cost}",
    fires='to="Rome", cost=1001',
    silent='to="Rome", cost=1000',
    doc="A trip must not cost more than 1000.",
)
BUDGET, BUDGET_TESTS = _BUDGET["source"], _BUDGET["tests"]


@pytest.fixture
def append(user: MemoryUser) -> Append:
    """Append typed entries without working on them; return their seqs."""
    return functools.partial(steps.append_records, user)


@pytest.fixture
def checkpoint(user: MemoryUser) -> Append:
    """Append typed entries and settle them; return their seqs."""
    return functools.partial(steps.settle_records, user)


@pytest.fixture
def say(user: MemoryUser) -> Say:
    """Append facts that nobody has settled; return their seqs."""
    return functools.partial(steps.append_texts, user, kind=EntryKind.FACT)


@pytest.fixture
def propose(user: MemoryUser) -> Propose:
    """Propose edits and let the gate decide; return the finished run."""
    return functools.partial(steps.propose, user)


@pytest.fixture
def source_of(user: MemoryUser) -> Source:
    """Return the source of a file of the newest version."""

    def do(path: str) -> str:
        return checkpoints.read_file(head_of(user), path)

    return do


@pytest.fixture
def verdicts(user: MemoryUser) -> Callable[[], dict[int, tuple[str, str]]]:
    """Return seq → (outcome, reason) of every entry that has one."""

    def do() -> dict[int, tuple[str, str]]:
        rows = EntryOutcome.objects.filter(user=user)
        return {row.seq: (row.outcome, row.reason) for row in rows}

    return do


def trip(to: str = "Rome", **fields: Any) -> dict[str, Any]:
    """Return a typed entry of a trip with this key."""
    key = {"key": fields.pop("key")} if "key" in fields else {}
    return {"domain": "travel", "type": "Trip", "data": {"to": to, **fields}, **key}


def constraint(source: str = BUDGET, tests: str = BUDGET_TESTS, name: str = "budget") -> Any:
    return {"op": "write_constraint", "name": name, "source": source, "tests_source": tests}


def with_lines(*lines: str) -> str:
    """Return the constraint with lines before its loop, which its own tests do not reach."""
    return BUDGET.replace("    for trip", "\n".join([*lines, "    for trip"]))


def checks(run: Run) -> dict[str, bool]:
    return {check["name"]: check["passed"] for check in not_none(run.output)["verdict"]["checks"]}


def failed_checks(run: Run) -> list[str]:
    return [name for name, passed in checks(run).items() if not passed]


def findings(run: Run, *codes: str) -> list[dict[str, Any]]:
    """Return what the gate found, or what it found with one of these codes alone."""
    judged = not_none(run.output)["verdict"]["checks"]
    found = [one for check in judged for one in check["findings"]]
    return [one for one in found if not codes or one["code"] in codes]


def repairs(run: Run) -> list[tuple[str, int, str]]:
    judged = not_none(run.output)["verdict"]["checks"]
    (edits,) = [check for check in judged if check["name"] == "edits"]
    found = [one for one in edits["findings"] if one["code"] == "repaired"]
    assert not any(one["blocking"] for one in found)
    return [(one["path"], one["edit"], one["message"].rpartition(" ")[2]) for one in found]
