"""Boundary mutants: those of a source, and those that its tests detect."""

import pytest

from workers.gate.boundary_mutants import MAX_MUTANTS, boundary_mutants

HEAD = "def check(today: datetime.date) -> Iterator[Alert]:\n"

LINES = {
    "if today < trip.starts_on:": [("<", "<=")],
    "if trip.starts_on >= today:": [(">=", ">")],
    "if today <= last or trip.is_open:": [("<=", "<"), ("or", "and")],
    "if trip.ends_on - datetime.timedelta(days=30) > today:": [(">", ">="), ("30", "31")],
    "if first <= today <= last and ok:": [("<=", "<"), ("<=", "<"), ("and", "or")],
    # An index, a step, a text and a comment are no boundary.
    "x = today, trips[0], trips[-1]": [],
    "count += 1; x = today": [],
    "message = f'{today} {1 if a < b else 2} < and 30'  # or <= 3": [],
    "yield critical('within 30 days', evidence=[today])": [],
    "ratio = today.year * 1.5": [],
    "x = trip.days or 0, range(0), today": [("or", "and")],
    "if (today - trip.on).days == 0: ...": [("0", "1")],
    # Nobody tests a 25th hour, or with units that are none.
    "if now.hour * 60 + now.minute > 24 * 60: ...": [(">", ">=")],
    "if (now - taken.at).seconds // 3600 >= 24: ...": [(">=", ">"), ("24", "25")],
    "hours = (today - trip.on).days * 24 % 60 / 12": [],
    "if spent > 3 * usual and today.day % 7 == 2: ...": [
        (">", ">="),
        ("and", "or"),
        ("3", "4"),
        ("7", "8"),
        ("2", "3"),
    ],
    # A look-ahead, but not the least of an amount.
    "for n in range(30), range(0): x = today": [("30", "31")],
    "left = max(0, limit - spent), min(spent, 0), today": [],
    "if max(0, (trip.on - today).days) <= 30: ...": [("<=", "<"), ("30", "31")],
    "last = trip.on + datetime.timedelta(days=30, hours=24), today": [("30", "31"), ("24", "25")],
    "SOON = 24; x = today": [("24", "25")],
}


@pytest.mark.parametrize("line", LINES)
def test_each_boundary_has_a_mutant(line: str) -> None:
    source = f"{HEAD}    {line}\n"
    found = boundary_mutants(source)
    assert [(one.written, one.instead) for one in found] == LINES[line]
    assert {one.line for one in found} <= {2}
    for one in found:
        assert one.source != source
        assert len(one.source.splitlines()) == 2


def test_unnoticed_mutant_is_reported_with_its_fix() -> None:
    (mutant,) = boundary_mutants(f"{HEAD}    for trip in trips:\n        if today < trip.on: ...\n")
    assert (
        mutant.message == "no test fails with `<=` instead of `<` on line 3, in `today < trip.on`"
    )
    assert "exactly that day" in mutant.fix


def test_boundary_is_told_from_another_in_its_line() -> None:
    line = "if trip.on(1, 2)  <= today <= max(a, b) - timedelta(days=x) and not ok: ..."
    told = [one.quoted for one in boundary_mutants(f"{HEAD}    {line}\n")[:2]]
    assert told == ["trip.on(1, 2) <= today", "today <= max(a, b) - timedelta(days=x)"]


@pytest.mark.parametrize(
    "source",
    [
        f"{HEAD}    if trip.cost > 1000: ...\n",  # which takes the day and does not read it
        "def check(today: datetime.date) -> Iterator[Alert]:\n    'Before today or now, 3 < 4.'\n",
    ],
)
def test_only_those_that_read_the_clock_have_any(source: str) -> None:
    assert boundary_mutants(source) == []


def test_likeliest_slips_of_many_boundaries_are_kept() -> None:
    numbers = "".join(f"    x{n} = {n}\n" for n in range(200))
    found = boundary_mutants(f"{HEAD}{numbers}    if today > last: ...\n")
    assert len(found) == MAX_MUTANTS
    assert found[0].written == ">"
