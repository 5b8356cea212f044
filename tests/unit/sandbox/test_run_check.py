"""`uac.testing.run_check`: a constraint run on a test's own state."""

import datetime
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import pytest

from sandbox_image.uac import Alert, Record, Ref, critical, trust_of
from sandbox_image.uac.records import ENTRY_CLASSES
from sandbox_image.uac.testing import run_check

TODAY = datetime.date(2026, 1, 31)


@dataclass(kw_only=True)
class Trip(Record):
    name: str


REAL_TRIP = Trip(key="real", name="Rome")
REAL_HOME = Trip(key="home", name="Berlin")


@pytest.fixture
def constraint(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A constraint that imports two collections and a single record from a domain's state."""
    state = ModuleType("domains.travel.state")
    vars(state).update(trips=[REAL_TRIP], plans=[REAL_TRIP], home=REAL_HOME)
    monkeypatch.setitem(sys.modules, state.__name__, state)
    module = ModuleType("constraints.away")
    vars(module).update(trips=vars(state)["trips"], plans=vars(state)["plans"], home=REAL_HOME)
    module.__dict__["LIMITS"] = [1, 2]

    def check(today: datetime.date) -> Iterator[Alert]:
        for trip in [*vars(module)["trips"], *vars(module)["plans"]]:
            yield critical(f"{trip.name} on {today}", evidence=[trip])

    module.__dict__["check"] = check
    return module


def test_sees_the_state_given_and_no_other(constraint: ModuleType) -> None:
    alerts = run_check(constraint, today=TODAY, trips=[Trip(key="t", name="Oslo")])
    assert [alert.message for alert in alerts] == ["Oslo on 2026-01-31"]


def test_says_where_entries_come_from(constraint: ModuleType) -> None:
    def check(today: datetime.date) -> Iterator[Alert]:
        for trip in vars(constraint)["trips"]:
            yield critical(trust_of(trip), evidence=[trip])

    constraint.__dict__["check"] = check
    trips = [Trip(key=f"{sources}", name="x", sources=sources) for sources in [(), (1, 2), (2, 3)]]

    alerts = run_check(constraint, today=TODAY, trust={2: "tool", 3: "model"}, trips=trips)

    assert [alert.message for alert in alerts] == ["user", "tool", "model"]


@pytest.mark.parametrize("classes", [None, "u", "ux"])
def test_does_not_guess_where_an_entry_comes_from(
    monkeypatch: pytest.MonkeyPatch, classes: str | None
) -> None:
    # Given what the server adds to a project, if anything
    if classes is not None:
        module = ModuleType(ENTRY_CLASSES)
        vars(module)["CLASSES"] = classes
        monkeypatch.setitem(sys.modules, ENTRY_CLASSES, module)
    # When a record rests on an entry that this does not cover
    record = Trip(key="a", name="x", sources=(1, 2))
    # Then that is an error, instead of a guess
    with pytest.raises(LookupError):
        trust_of(record)


def test_restores_the_module_even_after_an_error(constraint: ModuleType) -> None:
    before = dict(vars(constraint))
    with pytest.raises(AttributeError):
        run_check(constraint, today=TODAY, trips=["no trip"])
    run_check(constraint, today=TODAY)
    assert dict(vars(constraint)) == before


def test_keeps_the_constants_of_the_constraint(constraint: ModuleType) -> None:
    def check(today: datetime.date) -> Iterator[Alert]:
        yield critical(str(vars(constraint)["LIMITS"]), key="k")

    constraint.__dict__["check"] = check
    (alert,) = run_check(constraint, today=TODAY)
    assert alert.message == "[1, 2]"


def test_a_single_record_that_was_not_given_may_not_be_used(constraint: ModuleType) -> None:
    def check(today: datetime.date) -> Iterator[Alert]:
        yield critical(vars(constraint)["home"].name, key="k")

    constraint.__dict__["check"] = check
    with pytest.raises(TypeError, match="pass home="):
        run_check(constraint, today=TODAY)
    given = run_check(constraint, today=TODAY, home=Trip(key="h", name="Bonn"))
    assert [alert.message for alert in given] == ["Bonn"]


def test_references_resolve_among_the_state_given(constraint: ModuleType) -> None:
    def check(today: datetime.date) -> Iterator[Alert]:
        yield critical(Ref[Trip]("t").get().name, key="k")

    constraint.__dict__["check"] = check
    (alert,) = run_check(constraint, today=TODAY, trips=[Trip(key="t", name="Oslo")])
    assert alert.message == "Oslo"
    with pytest.raises(LookupError):
        run_check(constraint, today=TODAY, trips=[])


@dataclass(kw_only=True)
class Person(Record):
    name: str


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another domain, from which the constraint imports nothing."""
    state = ModuleType("domains.people.state")
    vars(state).update(people=[], __annotations__={"people": list[Person]})
    monkeypatch.setitem(sys.modules, state.__name__, state)


def test_references_resolve_beyond_imports(constraint: ModuleType, people: None) -> None:
    def check(today: datetime.date) -> Iterator[Alert]:
        yield critical(Ref[Person]("p").get().name, key="k")

    constraint.__dict__["check"] = check
    (alert,) = run_check(constraint, today=TODAY, people=[Person(key="p", name="Ada")])
    assert alert.message == "Ada"
    with pytest.raises(LookupError):
        run_check(constraint, today=TODAY)


def test_unknown_name_is_told_the_right_place(constraint: ModuleType, people: None) -> None:
    with pytest.raises(TypeError, match=r"takes persons; it uses .*; Person is in people\.people$"):
        run_check(constraint, today=TODAY, persons=[Person(key="p", name="Ada")])


def test_a_name_that_the_constraint_does_not_import_gets_a_hint(constraint: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"neither imports nor takes flights; it uses home, plans"):
        run_check(constraint, today=TODAY, flights=[])
    with pytest.raises(TypeError, match="LIMITS"):  # its own list is no state
        run_check(constraint, today=TODAY, LIMITS=[])


def test_now_gives_the_date_too(constraint: ModuleType) -> None:
    now = datetime.datetime(2026, 1, 31, 23, tzinfo=datetime.UTC)
    (alert,) = run_check(constraint, now=now, trips=[Trip(key="t", name="Oslo")])
    assert alert.message == "Oslo on 2026-01-31"


def test_a_missing_moment_is_named(constraint: ModuleType) -> None:
    with pytest.raises(TypeError, match="pass today="):
        run_check(constraint)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda today: 3, "check returned int"),
        (lambda today: [1], "check yielded int"),
        (lambda today: None, "check returned NoneType"),
        (lambda tomorrow: [], "a parameter 'tomorrow'"),
        ("no function", "has no check"),
    ],
)
def test_a_check_that_is_none_is_refused(
    constraint: ModuleType, check: object, message: str
) -> None:
    constraint.__dict__["check"] = check
    with pytest.raises(TypeError, match=message):
        run_check(constraint, today=TODAY)


@pytest.fixture
def workspace_constraint() -> ModuleType:
    """A constraint of a workspace, which takes two shapes instead of importing state."""

    def check(
        today: datetime.date, trips: Sequence[Trip], plans: Sequence[Trip] = ()
    ) -> Iterator[Alert]:
        for trip in [*trips, *plans]:
            yield critical(f"{trip.name} on {today}", evidence=[trip])

    module = ModuleType("workspace.constraints.away")
    vars(module).update(check=check, Trip=Trip)
    return module


def test_a_workspace_constraint_is_handed_its_shapes(workspace_constraint: ModuleType) -> None:
    oslo, rome = Trip(key="t", name="Oslo"), Trip(key="u", name="Rome")
    found = run_check(workspace_constraint, today=TODAY, trips=[oslo], plans=[rome])
    assert [alert.message for alert in found] == ["Oslo on 2026-01-31", "Rome on 2026-01-31"]
    assert [alert.evidence for alert in found] == [(oslo,), (rome,)]


def test_a_shape_that_was_not_given_has_no_records(workspace_constraint: ModuleType) -> None:
    assert run_check(workspace_constraint, today=TODAY) == []


def test_a_name_that_the_check_does_not_take_gets_a_hint(workspace_constraint: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"neither imports nor takes flights; it uses plans, trips"):
        run_check(workspace_constraint, today=TODAY, flights=[])


def test_a_parameter_that_is_no_shape_is_refused(workspace_constraint: ModuleType) -> None:
    def check(today: datetime.date, limit: int) -> Iterator[Alert]:
        yield from ()

    vars(workspace_constraint)["check"] = check
    with pytest.raises(TypeError, match="check has a parameter 'limit'"):
        run_check(workspace_constraint, today=TODAY)
