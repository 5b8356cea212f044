"""Read facts about a constraint from its source, without running it."""

import pytest

from memory.constraints.constraint_sources import (
    collections_read,
    may_be_critical,
    optional_fields_at,
    reads_field,
    reads_of,
)
from memory.project import Domain, Outline
from memory.project.outline import Class, Collection, Field, Shard
from memory.project.types import parse_type

SOURCE = """\
from collections.abc import Iterator
from uac import Alert, critical
from domains.travel.state import trips


def check() -> Iterator[Alert]:
    for trip in trips:
        if trip.cost > 1000 and trip.to:
            yield critical(trip.to, evidence=[trip])
"""


def a_class(name: str, *, is_record: bool = True, **fields: str) -> Class:
    made = tuple(Field(field, parse_type(type_)) for field, type_ in fields.items())
    return Class(name, made, is_record)


TRIP = a_class("Trip", to="str", cost="int | None", hotel="Hotel")
VISIT = a_class("Visit", cost="int | None")
HOTEL = a_class("Hotel", is_record=False, cost="float | None")
TRAVEL = Domain(
    "travel",
    classes={"Trip": TRIP, "Visit": VISIT, "Hotel": HOTEL},
    collections={
        "trips": Collection("trips", "Trip", (Shard("domains/travel/state.py"),)),
        "visits": Collection("visits", "Visit", (Shard("domains/travel/state.py"),)),
    },
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SOURCE, True),
        (SOURCE.replace("critical", "warning"), False),
        ("yield Alert(Severity.CRITICAL)", True),
        ("uncritical = 1", False),
    ],
)
def test_a_constraint_that_may_be_critical_names_it(source: str, expected: bool) -> None:
    assert may_be_critical(source) is expected


def test_constraint_reads_the_collections_that_it_imports() -> None:
    assert collections_read(SOURCE) == {("travel", "trips")}


@pytest.mark.parametrize("source", ["def (", "a = '\x00'", "", "(" * 5000])
def test_text_that_is_no_python_reads_nothing(source: str) -> None:
    assert collections_read(source) == set()


@pytest.mark.parametrize(
    ("class_", "field", "expected"),
    [
        (TRIP, "cost", True),
        (TRIP, "hotel", False),
        (VISIT, "cost", False),  # another class, of which it reads no record
        (HOTEL, "cost", True),  # a part of what it reads, maybe
    ],
)
def test_constraint_reads_imported_fields(class_: Class, field: str, expected: bool) -> None:
    assert reads_field(reads_of(SOURCE), TRAVEL, class_, field) is expected


def test_the_fields_of_a_line_that_may_be_empty_are_named() -> None:
    outline = Outline().with_domain(TRAVEL)
    line = SOURCE[: SOURCE.index("trip.cost")].count("\n") + 1
    found = [
        (class_.name, field.name) for _, class_, field in optional_fields_at(SOURCE, line, outline)
    ]
    assert found == [("Trip", "cost"), ("Hotel", "cost")]
    assert optional_fields_at(SOURCE, line + 1, outline) == []
    assert optional_fields_at(SOURCE, None, outline) == []
