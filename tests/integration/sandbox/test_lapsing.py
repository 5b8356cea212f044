"""Records that have lapsed are left out, unless the code asks for them."""

import datetime
from typing import Any

import pytest

from tests.integration.sandbox.conftest import NOW, PROJECT
from tests.integration.sandbox.test_forecast import HEAD, look_ahead
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.results import Evaluation, NamedRecords

SCHEMA = PROJECT["domains/travel/schema.py"].replace(
    "    mode: Mode", "    lapses_after: datetime.date | None = None\n    mode: Mode"
)
STATE = (
    PROJECT["domains/travel/state.py"]
    .replace("datetime.date(2026, 3, 1), s", "lapses_after=datetime.date(2026, 3, 2), s")
    .replace("on=lapses", "lapses")
)
LAPSING = {"domains/travel/schema.py": SCHEMA, "domains/travel/state.py": STATE}
DAY = datetime.timedelta(days=1)
BEFORE, AFTER = NOW + DAY, NOW + 2 * DAY
COUNTS = (
    HEAD
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        yield info(trip.name, evidence=[trip])
"""
)
TIMELESS = COUNTS.replace("today: datetime.date", "")
MOMENTS = COUNTS.replace("today: datetime.date", "now: datetime.datetime")
ASKS = COUNTS.replace("import Alert", "import Alert, has_lapsed").replace(
    "yield", "if has_lapsed(trip, today):\n            yield"
)


def evaluate(sandbox: Sandbox, code: str, now: datetime.datetime) -> Evaluation:
    return sandbox.evaluate(code, now=now, time_zone="UTC", limits=Limits())


@pytest.fixture
def lapsing(sandbox: Sandbox) -> Sandbox:
    """A sandbox with three trips, of which the one to Rome lapses after 2 March."""
    sandbox.load({**PROJECT, **LAPSING})
    return sandbox


@pytest.mark.parametrize(
    "code",
    [
        "[t.name for t in trips]",
        "from domains.travel.state import trips as ts\n[t.name for t in ts]",
    ],
)
def test_a_query_does_not_see_lapsed_records_and_says_so(lapsing: Sandbox, code: str) -> None:
    last_day, day_after = (evaluate(lapsing, code, now) for now in (BEFORE, AFTER))

    assert (last_day.value, last_day.evidence.lapsed) == (["Rome", "Oslo", "Bonn"], ())
    assert day_after.value == ["Oslo", "Bonn"]
    assert day_after.evidence.lapsed == (NamedRecords("travel", "trips", 1, ["t-1"]),)
    assert day_after.evidence.collections == (("travel", "trips", 2),)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("[t.name for t in trips if has_lapsed(t, today)]", ["Rome"]),
        ("[t.name for t in trips if t.lapses_after]", ["Rome"]),
        ("[t.name for t in trips if not has_lapsed(t, today)]", ["Oslo", "Bonn"]),
    ],
)
def test_a_query_that_names_the_last_day_sees_all(
    lapsing: Sandbox, code: str, names: list[str]
) -> None:
    evaluation = evaluate(lapsing, code, AFTER)

    assert (evaluation.value, evaluation.evidence.lapsed) == (names, ())


def test_the_day_is_that_where_the_user_lives(lapsing: Sandbox) -> None:
    count = "len(trips)"
    late = datetime.datetime(2026, 3, 2, 23, 30, tzinfo=datetime.UTC)

    assert evaluate(lapsing, count, late).value == 3
    in_berlin = lapsing.evaluate(count, now=late, time_zone="Europe/Berlin", limits=Limits())
    assert in_berlin.value == 2


def test_a_domain_that_is_its_collection_leaves_them_out(sandbox: Sandbox) -> None:
    note = """\
import datetime
from dataclasses import dataclass
from uac import PartialDate, Record

@dataclass(kw_only=True)
class Note(Record):
    lapses_after: datetime.date | PartialDate | str | None = None
"""
    state = """\
import datetime
from uac import PartialDate
from domains.notes.schema import Note
notes: list[Note] = [
    Note(key="month", lapses_after=PartialDate("2026-02")),
    Note(key="this-month", lapses_after=PartialDate("2026-03")),
    Note(key="text", lapses_after="soon"),
]
"""
    sandbox.load({**PROJECT, "domains/notes/schema.py": note, "domains/notes/state.py": state})

    for code in ("[n.key for n in notes]", "[n.key for n in notes.notes]"):
        assert evaluate(sandbox, code, NOW).value == ["this-month", "text"]


def test_a_single_record_stays_and_is_named(sandbox: Sandbox) -> None:
    lapsed = 'Passport(key="p-1", lapses_after=datetime.date(2020, 1, 1), '
    files = {
        "domains/travel/schema.py": PROJECT["domains/travel/schema.py"].replace(
            "    number: str", "    number: str\n    lapses_after: datetime.date | None = None"
        ),
        "domains/travel/state.py": PROJECT["domains/travel/state.py"].replace(
            'Passport(key="p-1", ', lapsed
        ),
    }
    sandbox.load({**PROJECT, **files})

    evaluation = evaluate(sandbox, "passport.number", NOW)

    assert evaluation.value == "X1"
    assert evaluation.evidence.lapsed == (NamedRecords("travel", "passport", 1, ["p-1"]),)


def names_found(sandbox: Sandbox, source: str, now: datetime.datetime) -> list[str]:
    sandbox.load({**PROJECT, **LAPSING, "constraints/trips.py": source})
    ran = sandbox.run_constraints(
        ["constraints/trips.py"], now=now, time_zone="UTC", limits=Limits()
    )
    assert ran.results[0].error is None
    return [alert.message for alert in ran.results[0].alerts]


@pytest.mark.parametrize("source", [COUNTS, TIMELESS, MOMENTS])
def test_a_constraint_does_not_see_lapsed_records(sandbox: Sandbox, source: str) -> None:
    assert names_found(sandbox, source, BEFORE) == ["Rome", "Oslo", "Bonn"]
    assert names_found(sandbox, source, AFTER) == ["Oslo", "Bonn"]


def test_a_constraint_that_asks_for_lapsed_records_gets_them(sandbox: Sandbox) -> None:
    assert names_found(sandbox, ASKS, BEFORE) == []
    assert names_found(sandbox, ASKS, AFTER) == ["Rome"]


@pytest.mark.parametrize(
    ("source", "at"),
    [(COUNTS, "2026-03-03"), (TIMELESS, "2026-03-03"), (MOMENTS, "2026-03-02T23:00:00+00:00")],
)
def test_a_forecast_knows_the_day_on_which_a_record_lapses(
    sandbox: Sandbox, source: str, at: str
) -> None:
    found: Any = look_ahead(sandbox, {"trips": source}, files=LAPSING)["trips"]

    assert [len(change.findings) for change in found.changes] == [3, 2]
    assert datetime.datetime.fromisoformat(found.changes[1].at) == datetime.datetime.fromisoformat(
        at
    )
    assert (found.error, found.until) == (None, None)
    assert found.calls < 10


def test_a_forecast_of_a_constraint_that_asks_is_traced_as_well(sandbox: Sandbox) -> None:
    found = look_ahead(sandbox, {"trips": ASKS}, files=LAPSING)["trips"]

    assert [(change.at, len(change.findings)) for change in found.changes] == [
        ("2026-03-02", 0),
        ("2026-03-03", 1),
    ]
