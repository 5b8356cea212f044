"""Field values, and the records that they make up.

A value mirrors the source text in a state file, which is parsed but never executed. Scalars and
dates are plain Python objects; instances of classes that the user's code declares are represented
by small frozen dataclasses.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeAlias

PARTIAL_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


@dataclass(frozen=True)
class PartialDate:
    """A date that may be precise only to the year or the month: "2021", "2021-11"."""

    text: str

    def __post_init__(self) -> None:
        match = PARTIAL_DATE.fullmatch(self.text)
        if not match:
            raise ValueError(
                f"{self.text!r} is not a partial date: write YYYY, YYYY-MM or YYYY-MM-DD"
            )
        year, month, day = (int(part) if part else 1 for part in match.groups())
        datetime.date(year, month, day)


@dataclass(frozen=True)
class EnumMember:
    """A member of an enum declared in the record's own domain."""

    class_name: str
    member: str


@dataclass(frozen=True)
class Ref:
    """A reference to a record, of class "Passport" or, in another domain, "identity.Passport"."""

    class_name: str
    key: str


@dataclass(frozen=True)
class Struct:
    """An instance of a dataclass that is not a record.

    As in a record, `fields` are in the order in which the class declares them, and fields that have
    their default value are omitted.
    """

    class_name: str
    fields: Mapping[str, "Value"]


Scalar: TypeAlias = (
    bool
    | int
    | float
    | str
    | Decimal
    | datetime.date
    | datetime.datetime
    | datetime.time
    | PartialDate
    | EnumMember
    | Ref
    | None
)
Value: TypeAlias = Scalar | Struct | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True)
class Record:
    """One typed object in the state.

    `fields` are in the order in which the class declares them, and fields that have their default
    value are omitted. So a field can be added to a class without touching its records.
    """

    class_name: str
    key: str
    fields: Mapping[str, Value]
    sources: tuple[int, ...] = ()


class RecordId(NamedTuple):
    """A record's identity; `collection` may also be a singleton's name."""

    domain: str
    collection: str
    key: str


class Location(NamedTuple):
    """The file that contains a record, or contained it before it was retired.

    `ended_by` is the entry with the key's last retirement. It is kept when the key comes back,
    because entries that occurred before it are not part of the record's new life.
    """

    path: str
    retired: bool = False
    ended_by: int | None = None
