"""Which record an `add` would duplicate."""

import datetime
from typing import Any

import pytest

from memory.project import Record, RecordId
from memory.project.values import EnumMember
from workers.authoring.same_records import Candidates

PRIDE = {"what": "Pride parade", "person": "Caroline", "on": datetime.date(2023, 7, 3)}
CLASSES = {"what": "pottery class", "person": "Melanie", "state": EnumMember("State", "PLANNED")}


def same_as(new: dict[str, Any], *known: dict[str, Any]) -> int | None:
    """Return the index of the known record that says the same, if any does."""
    records = [
        (RecordId("life", "events", str(index)), Record("Event", str(index), fields, (index + 1,)))
        for index, fields in enumerate(known)
    ]
    found = Candidates(records).find_alike(new)
    return None if found is None else int(found.key)


@pytest.mark.parametrize(
    "new",
    [
        {"what": "Pride parade", "person": "Caroline", "on": "2023-07-03"},
        {"what": "the pride parades", "person": "Caroline", "on": "2023-07"},
        {"what": "LGBTQ pride parade", "person": "Caroline"},
    ],
)
def test_words_and_dates_that_agree_are_the_same(new: dict[str, Any]) -> None:
    assert same_as(new, CLASSES, PRIDE) == 1


@pytest.mark.parametrize(
    "new",
    [
        {"what": "support group", "person": "Caroline", "on": "2023-07-03"},
        {"what": "parade", "person": "Melanie"},
        {"what": "pottery", "on": "2023-07-03"},
        {"what": "a school speech", "person": "Caroline", "state": "planned"},
        {"on": "2023-07-03"},
        {"what": "Pride parade", "person": "Melanie", "on": "2023-07-03"},
        {"what": "a parade in the centre for pride and for peace among all people"},
        {"what": f"a long walk in {'the hills and ' * 9}woods", "person": "Caroline"},
    ],
)
def test_other_things_are_not_asked_about(new: dict[str, Any]) -> None:
    assert same_as(new, CLASSES, PRIDE) is None


def test_the_same_on_another_day_may_have_been_moved_unless_it_recurs() -> None:
    moved = {**PRIDE, "on": "2023-08-12"}
    assert same_as(moved, CLASSES, PRIDE) == 1
    assert same_as(moved, PRIDE, {**PRIDE, "on": datetime.date(2022, 7, 2)}) is None


def test_four_digits_are_a_year_only_where_there_are_dates() -> None:
    flat = {"what": "flat number", "number": "1850"}
    assert same_as({"what": "flat number", "number": "1851"}, flat) is None
    assert same_as({"what": "flat number", "number": "1850"}, flat) == 0
    assert same_as({**PRIDE, "on": "2023"}, PRIDE) == 0
    assert same_as({**PRIDE, "on": "2022"}, PRIDE, {**PRIDE, "on": datetime.date(2022, 7, 2)}) == 1
