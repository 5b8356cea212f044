"""Faults of every kind, inserted one by one: which check of the gate finds each, and its message.

With `-s` the table is printed. Faults that edits can express are proposed as edits; those that no
edit can cause, because trusted code writes the files, are inserted into the candidate itself.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.test.utils import override_settings

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import EntryOutcome
from memory.project import Change
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import RunTrigger
from tests.conftest import ENDLESS_AMONG_OTHERS
from tests.edits import define, update
from tests.integration.commits.conftest import (
    BUDGET,
    BUDGET_TESTS,
    Append,
    Propose,
    constraint,
    failed_checks,
    findings,
    trip,
    with_lines,
)
from tests.steps import append_texts, head_of, not_none
from workers.gate import checks, project_checks

pytestmark = pytest.mark.django_db

SAID = "We fly to Rome with Marianne on May 2, 2026, at 7 pm: 1,200 € for both, booking X4TY7Z."
WHEN = datetime.datetime(2026, 3, 4, 9, 30, tzinfo=datetime.UTC)
# Entries 1 and 2 are the trips, 3 is the message above, 4 supports nothing.
SOURCES = [3]

DEFINE = define(
    "travel.Flight",
    to="str",
    on="datetime.date",
    at="datetime.time | None",
    price="int",
    booking="str | None",
    with_whom="str | None",
)
FIELDS = {
    "to": "Rome",
    "on": "2026-05-02",
    "at": "19:00",
    "price": 1200,
    "booking": "X4TY7Z",
    "with_whom": "Marianne",
}
COST = {"domain": "travel", "class_name": "Trip", "name": "cost"}
RETIRE = {"op": "retire", "domain": "travel", "collection": "trips", "key": "b"}
TRIP = {"op": "add", "domain": "travel", "class_name": "Trip", "key": "c", "sources": SOURCES}
DISMISS = {"op": "dismiss", "reason": "small talk", "sources": [4]}


def flight(**fields: Any) -> list[dict[str, Any]]:
    """Add a flight, with different values in these fields."""
    add = {"op": "add", "domain": "travel", "class_name": "Flight", "key": "f", "sources": SOURCES}
    return [DEFINE, {**add, "fields": {**FIELDS, **fields}}]


def citing(*seqs: int) -> list[dict[str, Any]]:
    define, add = flight()
    return [define, {**add, "sources": list(seqs)}]


def another_trip(cost: int = 1200) -> list[dict[str, Any]]:
    return [{**TRIP, "fields": {"to": "Rome", "cost": cost}}]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault, and the gate's finding: the check, the code and the place."""

    edits: list[dict[str, Any]]
    check: str
    code: str
    place: Mapping[str, Any]
    considered: tuple[int, ...] = ()
    plant: Callable[[Change], Change] | None = None
    blind: bool = False  # the static policy does not see it
    before: tuple[dict[str, Any], ...] = ()  # accepted beforehand
    refused: bool = True
    trigger: RunTrigger = RunTrigger.API
    says: str = ""


def in_file(path: str, old: str, new: str) -> Callable[[Change], Change]:
    """Replace the text of a file of the candidate; an unchanged file is given as a whole."""

    def plant(change: Change) -> Change:
        text = change.files.get(path) or SCHEMA
        assert old in text, text
        return dataclasses.replace(change, files={**change.files, path: text.replace(old, new, 1)})

    return plant


SCHEMA = """\
from dataclasses import dataclass
from uac import Record


@dataclass(kw_only=True)
class Trip(Record):
    to: str
    cost: int
"""
STATE = "domains/travel/state.py"
TRIP_A = '    Trip(key="a", to="Rome", cost=1500, sources=(1,)),\n'
FLIGHT = {"record": {"domain": "travel", "collection": "flights", "key": "f"}}
FLIGHT_SAYS = {**FLIGHT, "entry": 3}


def record_of(key: str) -> dict[str, Any]:
    return {"record": {"domain": "travel", "collection": "trips", "key": key}}


DIVIDES = BUDGET.replace("trip.cost > 1000", "1000 // trip.cost == 0")
CLOCK = BUDGET.replace("in trips:", "in trips if datetime.date.today() > today else trips:")
CHANCE = BUDGET.replace("import datetime", "import datetime\nimport random").replace(
    "in trips:", "in sorted(trips, key=lambda one: random.Random().random()):"
)
UNTIL_JUNE = BUDGET.replace("> 1000:", "> 1000 and today < datetime.date(2026, 6, 1):")
RULE = {"path": "constraints/budget.py"}
TESTS = {"path": "tests/test_budget.py"}

FAULTS: dict[str, Fault] = {
    # Records whose content no entry supports.
    "wrong number": Fault(
        flight(price=1300), "grounding", "ungrounded_number", {**FLIGHT_SAYS, "field": "price"}
    ),
    "wrong date": Fault(
        flight(on="2026-05-03"), "grounding", "ungrounded_date", {**FLIGHT_SAYS, "field": "on"}
    ),
    "wrong year": Fault(
        flight(on="2027-05-02"), "grounding", "ungrounded_date", {**FLIGHT_SAYS, "field": "on"}
    ),
    "wrong time": Fault(
        flight(at="19:30"), "grounding", "ungrounded_time", {**FLIGHT_SAYS, "field": "at"}
    ),
    "wrong code": Fault(
        flight(booking="X4TY72"),
        "grounding",
        "ungrounded_code",
        {**FLIGHT_SAYS, "field": "booking"},
    ),
    "wrong number in a text": Fault(
        flight(to="Rome, 1300 km"), "grounding", "ungrounded_number", {**FLIGHT_SAYS, "field": "to"}
    ),
    "wrong name": Fault(
        flight(with_whom="Annette"),
        "grounding",
        "ungrounded_name",
        {**FLIGHT_SAYS, "field": "with_whom"},
        refused=False,  # it is reported
    ),
    "right facts, wrong entry cited": Fault(
        citing(4), "grounding", "ungrounded_number", {**FLIGHT, "field": "price", "entry": 4}
    ),
    "invented number in an update": Fault(
        [update("travel.trips.a", 3, cost=1234)],
        "grounding",
        "ungrounded_number",
        {**record_of("a"), "field": "cost"},
    ),
    "record retired that no cited entry names": Fault(
        [{**RETIRE, "sources": [4]}],
        "grounding",
        "ungrounded_retirement",
        {**record_of("b"), "entry": 4},
    ),
    "record retired by what it rests on alone": Fault(
        [{**RETIRE, "sources": [2]}],  # which says Oslo, and not that it is off
        "grounding",
        "ungrounded_retirement",
        {**record_of("b"), "entry": 2},
    ),
    "more records retired than one text may": Fault(
        [{**RETIRE, "key": f"t-{number}", "sources": [2]} for number in range(21)],
        "grounding",
        "too_many_retired",
        {},
        before=tuple(
            {**TRIP, "key": f"t-{number}", "fields": {"to": "Oslo", "cost": 10}, "sources": [2]}
            for number in range(21)
        ),
    ),
    # Citations and outcomes.
    "entry that does not exist": Fault(
        citing(9), "coverage", "unknown_source", {"edit": 1, "entry": 9}
    ),
    "entry of another user": Fault(
        citing(5), "coverage", "unknown_source", {"edit": 1, "entry": 5}
    ),
    "entry without outcome": Fault(
        flight(), "coverage", "entry_without_outcome", {"entry": 4}, considered=(3, 4)
    ),
    "entry used and dismissed": Fault(
        [*flight(), {**DISMISS, "sources": [3, 4]}],
        "coverage",
        "used_and_dismissed",
        {"edit": 2, "entry": 3},
    ),
    "no citation": Fault(citing(), "edits", "no_sources", {"edit": 1}),
    "field that no class has": Fault(flight(gate="B7"), "edits", "unknown_field", {"edit": 1}),
    "key that was used before": Fault(
        [{**TRIP, "key": "a", "fields": {"to": "Rome", "cost": 1200}}],
        "edits",
        "key_exists",
        {"edit": 0},
    ),
    # Records lost or changed on the way.
    "dropped record": Fault(
        another_trip(), "no loss", "record_lost", record_of("a"), plant=in_file(STATE, TRIP_A, "")
    ),
    "changed value of an untouched record": Fault(
        another_trip(),
        "no loss",
        "record_changed",
        {**record_of("a"), "field": "cost"},
        plant=in_file(STATE, "cost=1500", "cost=1501"),
    ),
    "changed sources of an untouched record": Fault(
        another_trip(),
        "no loss",
        "record_changed",
        record_of("a"),
        plant=in_file(STATE, "sources=(1,)", "sources=(2,)"),
    ),
    "duplicated record": Fault(
        another_trip(),
        "no loss",
        "unreadable_file",
        {"path": STATE},
        plant=in_file(STATE, TRIP_A, TRIP_A + TRIP_A),
    ),
    "duplicated record under another key": Fault(
        another_trip(),
        "no loss",
        "record_unexpected",
        record_of("z"),
        plant=in_file(STATE, TRIP_A, TRIP_A + TRIP_A.replace('"a"', '"z"')),
    ),
    "record in another collection": Fault(
        another_trip(),
        "no loss",
        "record_lost",
        record_of("c"),
        plant=in_file(STATE, "trips:", "trips: list[Trip] = []\n\nvoyages:"),
    ),
    "renamed field": Fault(
        another_trip(),
        "execution",
        "does_not_run",
        {"path": STATE},
        plant=in_file("domains/travel/schema.py", "cost: int", "price: int"),
    ),
    # Constraints.
    "constraint whose tests never see it speak": Fault(
        [constraint(tests=BUDGET_TESTS.replace('== ["a"]', "in ([], ['a'])"))],
        "mutants",
        "never_alerts_unnoticed",
        TESTS,
    ),
    "constraint whose tests never see it silent": Fault(
        [
            constraint(
                tests=BUDGET_TESTS.replace("    assert run_check", "    run_check").replace(
                    " == []", ""
                )
            )
        ],
        "mutants",
        "always_alerts_unnoticed",
        TESTS,
    ),
    "constraint that never alerts": Fault(
        [constraint(BUDGET.replace("> 1000", "> 10 ** 9"))],
        "tests",
        "test_failed",
        {**TESTS, "test": "tests/test_budget.py::test_speaks", "type": "AssertionError"},
    ),
    "constraint that always alerts": Fault(
        [constraint(BUDGET.replace("> 1000", ">= 0"))],
        "tests",
        "test_failed",
        {**TESTS, "test": "tests/test_budget.py::test_is_silent", "type": "AssertionError"},
    ),
    "test that asserts nothing": Fault(
        [constraint(tests="def test_nothing() -> None:\n    assert True\n")],
        "mutants",
        "never_alerts_unnoticed",
        TESTS,
    ),
    "model's boundary that no test notices": Fault(
        [{**constraint(UNTIL_JUNE), "sources": [3]}],
        "mutants",
        "boundary_unnoticed",
        {
            **RULE,
            "line": 10,
            "message": "no test fails with `<=` instead of `<` on line 10, in"
            " `today < datetime.date(2026, 6, 1)`",
        },
        trigger=RunTrigger.MODEL,
    ),
    "anybody's boundary that no test notices": Fault(
        [constraint(UNTIL_JUNE)],
        "mutants",
        "boundary_unnoticed",
        {**RULE, "line": 10},
        refused=False,  # it is reported
    ),
    "no test": Fault(
        [constraint(tests="import datetime\n")], "policy", "test", TESTS, says="test_"
    ),
    "clock": Fault([constraint(CLOCK)], "policy", "clock", {**RULE, "line": 9}, says="today"),
    "clock that the policy does not see": Fault(
        [constraint(CLOCK)], "tests", "test_failed", {**RULE, "type": "ClockError"}, blind=True
    ),
    "randomness": Fault([constraint(CHANCE)], "policy", "import", {**RULE, "line": 2}),
    "randomness that the policy does not see": Fault(
        [constraint(CHANCE)], "tests", "test_failed", {**RULE, "type": "ChanceError"}, blind=True
    ),
    "order of a set": Fault(
        [constraint(BUDGET.replace('f"{trip.to} costs', "f\"{list(set('abcdefgh'))} {trip.to}"))],
        "constraints",
        "not_deterministic",
        RULE,
        says="iterated in a different order",
    ),
    "type error": Fault(
        [constraint(with_lines("    total: str = sum(one.cost for one in trips)"))],
        "types",
        "assignment",
        {**RULE, "line": 9},
    ),
    "type error in a branch that no test reaches": Fault(
        [constraint(with_lines("    if len(trips) > 99:", "        trips[0].csot"))],
        "types",
        "attr-defined",
        {**RULE, "line": 10},
    ),
    "type checker told to look away": Fault(
        [constraint(with_lines("    total: str = len(trips)  # type: ignore"))],
        "policy",
        "directive",
        {**RULE, "line": 9},
    ),
    "input and output": Fault(
        [constraint("import os\n" + BUDGET)], "policy", "import", {**RULE, "line": 1}, says="os"
    ),
    "endless loop": Fault(
        [constraint(with_lines("    while len(trips) == 2:", "        pass"))],
        "constraints",
        "timeout",
        RULE,
        says="timeout: took longer than 1.5 s",
    ),
    "raises on the state": Fault(
        [constraint(with_lines("    assert len(trips) != 2, 'two'"))],
        "constraints",
        "constraint_failed",
        {**RULE, "line": 9, "type": "AssertionError"},
        says="AssertionError: two",
    ),
    "syntax error": Fault(
        [constraint(BUDGET.replace("for trip in", "for trip"))],
        "edits",
        "syntax",
        {"edit": 0},
        says="line 9",
    ),
    "no check": Fault(
        [constraint(BUDGET.replace("def check", "def chek"))], "policy", "check", RULE, says="check"
    ),
    "unknown name": Fault(
        [constraint(BUDGET.replace("import trips", "import voyages as trips"))],
        "types",
        "attr-defined",
        RULE,
        says="voyages",
    ),
    "more alerts than one may raise": Fault(
        [
            constraint(
                with_lines(
                    "    for number in range(101 if len(trips) == 2 else 0):",
                    "        yield warning('again', key=str(number))",
                )
            )
        ],
        "constraints",
        "alert_limit",
        RULE,
        says="more than 100 alerts at once",
    ),
    # Old constraints on a new state.
    "record on which an old constraint raises": Fault(
        [{**another_trip(0)[0], "sources": [2], "derived": {"cost": "a gift"}}],
        "constraints",
        "constraint_failed",
        {**RULE, "type": "ZeroDivisionError"},
        before=(constraint(DIVIDES, BUDGET_TESTS.replace("cost=1000", "cost=999")),),
    ),
    "schema that an old constraint does not fit": Fault(
        [{"op": "widen_field", **COST, "type": "int | None"}],
        "types",
        "operator",
        {**RULE, "line": 10},
        before=(constraint(),),
    ),
    "field renamed under an old constraint": Fault(
        [{"op": "rename_field", **COST, "new_name": "price"}],
        "edits",
        "field_in_use",
        {},
        before=(constraint(),),
    ),
}

_rows: list[tuple[str, str, str, str]] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print the findings at the end."""
    yield
    rows = [("fault", "check", "finding", "what it says"), *_rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print()
    for row in rows:
        print(
            " | ".join(part.ljust(width) for part, width in zip(row[:3], widths, strict=True)),
            "|",
            row[3],
        )


@pytest.fixture
def head(user: MemoryUser, workspace: Workspace, checkpoint: Append) -> Checkpoint:
    """Two trips, and two messages that nobody has settled; somebody else's log is longer."""
    checkpoint(trip(key="a", cost=1500), trip("Oslo", key="b", cost=10))
    said = (SAID, "Nice weather today.")
    append_texts(user, *said, occurred_at=WHEN)
    append_texts(create_user(workspace, "bob", metadata=None), *said * 3, occurred_at=WHEN)
    return head_of(user)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(
    user: MemoryUser,
    head: Checkpoint,
    propose: Propose,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    fault = FAULTS[name]
    if fault.before:
        assert propose(*fault.before).outcome == "ok"
    before = user.head
    if fault.blind:
        monkeypatch.setattr(project_checks, "check_policy", lambda path, source, kinds: [])
    if fault.plant is not None:
        plant, judge = fault.plant, checks.judge
        monkeypatch.setattr(
            checks,
            "judge",
            lambda case: judge(dataclasses.replace(case, change=plant(case.change))),
        )

    with override_settings(**(ENDLESS_AMONG_OTHERS if fault.code == "timeout" else {})):
        run = propose(*fault.edits, considered=list(fault.considered), trigger=fault.trigger)

    judged = not_none(run.output)["verdict"]["checks"]
    (check,) = [one for one in judged if one["name"] == fault.check]
    found = [one for one in check["findings"] if one["code"] == fault.code]
    assert found, check
    finding = next((one for one in found if {**one, **fault.place} == one), None)
    assert finding is not None, found
    assert finding["message"]
    assert finding["blocking"] is fault.refused
    _rows.append((name, fault.check, fault.code, finding["message"]))
    if fault.refused:
        assert run.outcome == "rejected"
        assert not_none(run.error)["message"].startswith(fault.check)
        assert fault.says in str(run.output)
        assert failed_checks(run) == [fault.check]
        assert user.head == before
        assert Checkpoint.objects.filter(user=user).count() == not_none(before).version
        assert not Alert.objects.filter(user=user).exists()
        assert not EntryOutcome.objects.filter(user=user, seq__in=[3, 4]).exists()
    else:
        assert run.outcome == "ok"


def test_without_a_fault_all_of_it_is_accepted(
    user: MemoryUser, head: Checkpoint, propose: Propose
) -> None:
    gone = {**RETIRE, "key": "a", "sources": [3]}  # which says Rome

    run = propose(*flight(), *another_trip(), gone, DISMISS, constraint(), considered=[3, 4])

    assert run.outcome == "ok", run.error
    assert findings(run) == []
    outcomes = EntryOutcome.objects.filter(user=user, seq__in=[3, 4]).order_by("seq")
    assert [row.outcome for row in outcomes] == ["covered", "dismissed"]


def test_derived_value_is_accepted_with_its_reason(
    user: MemoryUser, head: Checkpoint, propose: Propose
) -> None:
    define, add = flight(price=600)

    assert propose(define, add).outcome == "rejected"
    run = propose(define, {**add, "derived": {"price": "1,200 € for both of them"}})

    assert run.outcome == "ok", run.error
    assert head_of(user).edits[1]["derived"] == [["price", "1,200 € for both of them"]]
