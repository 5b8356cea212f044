"""Field values, and the records that they make up.

A value mirrors the source text in a state file, which is parsed but never executed. Scalars and
dates are plain Python objects; instances of classes that the user's code declares are represented
by small frozen dataclasses.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from sandbox_image.uac import dates


@dataclass(frozen=True)
class PartialDate:
    """A date that is known only approximately: "2021", "2021-11", "1995~", "2023-07-15/2023-07-16".

    `uac.PartialDate` says what the texts mean; raises ValueError if this is none of them.
    """

    __match_args__ = ("text",)

    text: str
    bounds: tuple[datetime.date, datetime.date] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parsed = dates.PartialDate(self.text)
        object.__setattr__(self, "bounds", (parsed.earliest, parsed.latest))


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


def last_day_of(lapses_after: object) -> datetime.date | None:
    """Return the last day on which a record with this value of `lapses_after` holds, if any."""
    if isinstance(lapses_after, PartialDate):
        return lapses_after.bounds[1]
    is_moment = isinstance(lapses_after, datetime.datetime)
    return lapses_after if isinstance(lapses_after, datetime.date) and not is_moment else None


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
