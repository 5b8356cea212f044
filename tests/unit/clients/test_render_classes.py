"""The product's own classes as the source of a schema, which a workspace prescribes."""

import dataclasses
import datetime
import decimal
import enum
from typing import Optional

import pytest
from pydantic import BaseModel, Field
from userascode import render_classes
from userascode.prescribed import NoSuchType
from userascode.schema import PartialDate

from memory.project import DefineClass, FieldSpec
from memory.project.prescribed import edits_of_modules


class Mode(enum.Enum):
    TRAIN = "train"
    PLANE = "plane"


@dataclasses.dataclass
class Leg:
    number: int


@dataclasses.dataclass
class Person:
    key: str
    name: str
    born: PartialDate | None = None
    friend: "Person | None" = None


@dataclasses.dataclass(kw_only=True)
class Trip:
    """A journey."""

    destination: str
    cost: decimal.Decimal = decimal.Decimal("1.5")
    mode: Mode = Mode.TRAIN
    legs: list[Leg] = dataclasses.field(default_factory=list)
    guide: Person | None = None
    days: dict[str, float]


class Booking(BaseModel):
    """A journey."""

    destination: str
    until: Optional[datetime.date] = None  # noqa: UP045 - as many models write it
    mode: Mode = Mode.TRAIN
    legs: list[Leg] = Field(default_factory=list)


def classes(*given: type) -> dict[str, DefineClass]:
    """Return the classes that the server makes of the rendered module, by name."""
    edits = edits_of_modules({"travel": render_classes(*given)})
    return {edit.name: edit for edit in edits if isinstance(edit, DefineClass)}


def types(class_: DefineClass) -> dict[str, str]:
    return {field.name: field.type for field in class_.fields}


def test_dataclasses() -> None:
    found = classes(Trip, Person)

    assert {name: one.kind for name, one in found.items()} == {
        "Mode": "enum",
        "Leg": "object",
        "Person": "record",
        "Trip": "record",
    }
    assert found["Trip"].doc == "A journey."
    assert types(found["Trip"]) == {
        "destination": "str",
        "cost": "decimal.Decimal",
        "mode": "Mode",
        "legs": "list[Leg]",
        "guide": "Ref[Person] | None",
        "days": "dict[str, float]",
    }
    assert types(found["Person"]) == {
        "name": "str",
        "born": "PartialDate | None",
        "friend": "Ref[Person] | None",
    }
    defaults = {field.name: field.default for field in found["Trip"].fields}
    assert defaults["cost"] == decimal.Decimal("1.5")
    assert defaults["legs"] == []


def test_a_model_of_pydantic() -> None:
    booking = classes(Booking)["Booking"]

    assert types(booking) == {
        "destination": "str",
        "until": "datetime.date | None",
        "mode": "Mode",
        "legs": "list[Leg]",
    }
    assert FieldSpec("until", "datetime.date | None", None) in booking.fields


def test_a_type_that_no_schema_has_is_named_with_its_field() -> None:
    @dataclasses.dataclass
    class Strange:
        where: tuple[int, int]

    with pytest.raises(NoSuchType, match=r"Strange\.where: .*list\[\.\.\.\]"):
        render_classes(Strange)
    with pytest.raises(NoSuchType, match="object is neither"):
        render_classes(object)
