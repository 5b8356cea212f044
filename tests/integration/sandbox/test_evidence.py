"""Evidence for an answer, and messages about unknown names."""

import ast
from collections.abc import Sequence

import pytest

from sandbox_image.evaluation import MAX_EVIDENCE, MAX_READ
from sandbox_image.selection import Selection
from tests.integration.sandbox.conftest import NOW, PROJECT
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.results import RestsOn, SandboxError

LIMITS = Limits(wall_seconds=10, cpu_seconds=10)
TRIPS = ("travel", "trips", 3)
PASSPORT = ("travel", "passport", 1)
NOTES = ("notes", "notes", 1)


def rests_on(sandbox: Sandbox, code: str) -> RestsOn:
    return sandbox.evaluate(code, now=NOW, time_zone="UTC", limits=LIMITS).evidence


def keys(found: RestsOn) -> list[str]:
    named = [key for columns in found.records for key in columns.keys]
    assert found.count == len(named)
    return sorted(named)


@pytest.mark.parametrize(
    ("code", "expected", "collections"),
    [
        ("sum(1 for t in trips if t.on)", ["t-1"], [TRIPS]),
        ("len([t for t in travel.trips if 'o' in t.name.lower()])", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("len({t.name for t in trips if t.passport})", ["t-2"], [TRIPS]),
        ("sum({t.key: 1 for t in trips if not t.on if t.name > 'C'}.values())", ["t-2"], [TRIPS]),
        ("any(t.name == 'Oslo' for t in trips)", ["t-1", "t-2"], [TRIPS]),  # where it stopped
        ("max(t.name for t in trips)", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("sum(1 for t in trips if t.name == 'Paris')", [], [TRIPS]),
        ("data = trips\nsum(1 for t in data if t.on)", ["t-1"], [TRIPS]),
        ("from domains.travel.state import trips as ts\nsum(1 for t in ts if t.on)",
         ["t-1"], [TRIPS]),
        ("from domains.travel import state\nsum(1 for t in state.trips if t.on)",
         ["t-1"], [TRIPS]),
        ("sum(i for i, t in enumerate(sorted(trips, key=lambda t: t.name)) if t.on)",
         ["t-1"], [TRIPS]),
        ("def f():\n    return len([t for t in trips if t.on])\nf()", ["t-1"], [TRIPS]),
        ("sum(1 for t in trips if t.passport and t.passport.get() is passport)",
         ["p-1", "t-2"], [PASSPORT, TRIPS]),
        ("sum(1 for t in trips if t.name[0] > passport.number)", ["p-1"], [PASSPORT, TRIPS]),
        ("[t.passport.get().number for t in trips if t.passport]", ["p-1", "t-2"], [TRIPS]),
        ("sum(len(x) for t in trips for x in (t.name, t.key) if x == 'Rome')", ["t-1"], [TRIPS]),
        ("[n.text for n in notes]", ["note-1"], [("notes", "notes", 1)]),
    ],
)  # fmt: skip
def test_evidence_of_a_comprehension_is_its_selection(
    loaded: Sandbox, code: str, expected: Sequence[str], collections: Sequence[tuple[str, str, int]]
) -> None:
    found = rests_on(loaded, code)
    assert (found.scope, keys(found)) == ("selected", expected)
    assert list(found.collections) == list(collections)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("trips[0]", ["t-1"]),
        ("x = trips", ["t-1", "t-2", "t-3"]),
        ("[t for t in trips if not t.on]", ["t-2", "t-3"]),
        ("{'deep': [(trips[1], {'x': trips[1]})]}", ["t-2"]),
        ("trips[1].passport.get()", ["p-1"]),
        ("max(trips, key=lambda t: t.name)", ["t-1"]),
    ],
)
def test_records_in_the_value_are_what_it_rests_on(
    loaded: Sandbox, code: str, expected: Sequence[str]
) -> None:
    found = rests_on(loaded, code)
    assert (found.scope, keys(found)) == ("value", expected)


@pytest.mark.parametrize(
    ("code", "expected", "collections"),
    [
        ("len(trips)", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("max(trips, key=lambda t: t.name).name", ["t-1", "t-2", "t-3"], [TRIPS]),
        # With two comprehensions, or one beside another use, the selection of one is not
        # everything.
        ("sum(1 for t in trips if t.on) - sum(1 for t in trips if not t.on)",
         ["t-1", "t-2", "t-3"], [TRIPS]),
        ("sum(1 for t in trips if t.on) / len(trips)", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("n = 0\nfor t in trips:\n    n += 1\nn", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("passport.number", ["p-1"], [PASSPORT]),
        ("len(travel.__dict__)", ["p-1", "t-1", "t-2", "t-3"],
         [PASSPORT, ("travel", "plans", 0), TRIPS]),
        ("trips[1].passport.get().number", ["p-1", "t-1", "t-2", "t-3"], [TRIPS]),
        ("sum(1 for t in travel.plans)", [], [("travel", "plans", 0)]),
        ("sum(x for x in range(4))", [], []),
        ("1 + 1", [], []),
        # Under any name for a collection, and with two of the same name.
        ("first, *rest = trips\nfirst.name", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("g = {}\ng['x'] = trips\nlen(g['x'])", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("class A: pass\nA.xs = trips\nsum(1 for n in notes) / len(A.xs)",
         ["note-1", "t-1", "t-2", "t-3"], [NOTES, TRIPS]),
        ("if today.year > 2020:\n    xs = trips\nelse:\n    xs = notes\nlen(xs)",
         ["note-1", "t-1", "t-2", "t-3"], [NOTES, TRIPS]),
        ("import domains.travel.state\nimport domains.notes.state\n"
         "len(domains.travel.state.trips)",
         ["note-1", "p-1", "t-1", "t-2", "t-3"],
         [NOTES, ("notes", "plans", 0), PASSPORT, ("travel", "plans", 0), TRIPS]),
        ("from domains.travel.trips_0002 import trips as more\nlen(more)",
         ["t-1", "t-2", "t-3"], [TRIPS]),
        ("n = notes\nlen(n.plans)", [], [("notes", "plans", 0)]),
        ("sum(len(t.name) / len(trips) for t in trips)", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("sum(1 for t in trips if t.name in map(str, notes))",
         ["note-1", "t-1", "t-2", "t-3"], [NOTES, TRIPS]),
        ("sum(len(name) for name in map(str, trips))", ["t-1", "t-2", "t-3"], [TRIPS]),
        # The evidence has the state before the code changed it.
        ("trips.clear()\nlen(trips)", ["t-1", "t-2", "t-3"], [TRIPS]),
        ("import domains.travel.state as s\ns.trips = None\n5",
         ["t-1", "t-2", "t-3"], [TRIPS]),
        ("xs = trips\nxs.append(Trip(key='w', name='x'))\nsum(map(lambda t: 1, xs))",
         ["t-1", "t-2", "t-3"], [TRIPS]),
    ],
)  # fmt: skip
def test_evidence_of_other_code_is_what_it_reads(
    loaded: Sandbox, code: str, expected: Sequence[str], collections: Sequence[tuple[str, str, int]]
) -> None:
    found = rests_on(loaded, code)
    assert (found.scope, keys(found)) == ("read", expected)
    assert list(found.collections) == list(collections)


def test_a_record_has_its_class_its_place_and_its_entries(loaded: Sandbox) -> None:
    (trips,) = rests_on(loaded, "sum(1 for t in trips if t.on)").records
    assert trips == ("Trip", "travel", "trips", 1, ["t-1"], [[2, 3]])


def test_records_are_named_by_class_and_collection(loaded: Sandbox) -> None:
    passport, trips = rests_on(loaded, "[passport, *trips]").records
    assert passport[:5] == ("Passport", "travel", "passport", 1, ["p-1"])
    assert trips[:5] == ("Trip", "travel", "trips", 3, ["t-1", "t-2", "t-3"])
    assert [len(one.keys) for one in (passport, trips)] == [len(passport[5]), len(trips[5])]


def test_code_without_state_is_left_as_it_is() -> None:
    tree = ast.parse("sum(i for i in range(10))")
    before = ast.dump(tree)

    Selection(tree, {"trips": {"": [("travel", "trips")]}}, (), {})

    assert ast.dump(tree) == before


def test_iteration_is_unchanged_by_tracking(loaded: Sandbox) -> None:
    code = (
        "def endless():\n    yield from trips\n    while True:\n        yield trips[0]\n"
        "[n for n, t in zip(range(5), (x for x in endless()))]"
    )
    value = loaded.evaluate(code, now=NOW, time_zone="UTC", limits=LIMITS).value
    assert value == [0, 1, 2, 3, 4]
    with pytest.raises(SandboxError, match="'int' object is not iterable"):
        rests_on(loaded, "[t for t in len(trips)]")


def test_records_made_by_a_query_are_no_evidence(loaded: Sandbox) -> None:
    made = "made = [Trip(key='x', name='made up')]\n"
    found = rests_on(loaded, made + "sum(1 for t in made + trips if t.name == 'made up')")
    assert "x" not in {key for columns in found.records for key in columns.keys}
    assert rests_on(loaded, made + "made").records == ()


def test_evidence_names_the_first_of_many_records(sandbox: Sandbox) -> None:
    many = 'trips: list[Trip] = [Trip(key=f"t-{n}", name="x") for n in range(1500)]\n'
    state = "from domains.travel.schema import Passport, Trip\n" + many
    sandbox.load({**PROJECT, "domains/travel/state.py": state})
    selected = rests_on(sandbox, "sum(1 for t in trips if t.name == 'x')")
    read = rests_on(sandbox, "len(trips)")
    assert (selected.count, len(selected.records[0].keys)) == (1500, MAX_EVIDENCE)
    assert (read.count, len(read.records[0].keys)) == (1500, MAX_READ)


def test_every_collection_is_counted_also_where_no_record_of_it_is_named(sandbox: Sandbox) -> None:
    state = (
        "from domains.travel.schema import Passport, Trip\n"
        'trips: list[Trip] = [Trip(key=f"t-{n}", name="x") for n in range(1500)]\n'
        'passport = Passport(key="p-1", number="N1")\n'
    )
    sandbox.load({**PROJECT, "domains/travel/state.py": state})
    counted = rests_on(sandbox, "len(trips) + len(passport.number)")
    named = {(one.collection, one.total, len(one.keys)) for one in counted.records}
    assert named in (
        {("trips", 1500, MAX_READ), ("passport", 1, 0)},
        {("trips", 1500, MAX_READ - 1), ("passport", 1, 1)},
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("trips[0].nam",
         "'Trip' object has no attribute 'nam': did you mean 'name'?"
         " fields of Trip are key, mode, name, on, passport, sources"),
        ("[t.destination for t in trips]",
         "'Trip' object has no attribute 'destination':"
         " fields of Trip are key, mode, name, on, passport, sources"),
        ("travel.trip",
         "has no attribute 'trip': did you mean 'trips' or 'Trip'? names in this domain are"),
        ("Mode.TRAM", "TRAM: did you mean 'TRAIN'? members of Mode are TRAIN"),
        ("trip", "name 'trip' is not defined: did you mean 'trips'"),
        ("(lambda: [p for t in [1] for p in passprt])()",
         "did you mean 'passport' or 'Passport'? known names are Counter"),
    ],
)  # fmt: skip
def test_unknown_name_suggests_the_nearest(loaded: Sandbox, code: str, expected: str) -> None:
    with pytest.raises(SandboxError) as raised:
        rests_on(loaded, code)
    assert raised.value.error is not None
    assert expected in raised.value.error.message
    assert "$" not in raised.value.error.message


def test_hostile_names_are_no_trouble(loaded: Sandbox) -> None:
    code = (
        "class Odd(Trip):\n"
        "    @property\n    def __dict__(self):\n        raise SystemExit\n"
        "error = AttributeError('odd')\n"
        "error.name, error.obj = ['x'], Odd(key='k', name='n')\n"
        "raise error"
    )
    with pytest.raises(SandboxError) as raised:
        rests_on(loaded, code)
    assert not_none(raised.value.error).message == "odd"
