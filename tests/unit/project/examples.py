"""One project that uses everything, with names chosen to conflict with each other."""

from memory.project import Project

from .support import add, add_field, define, define_enum, project_with, write

EXPIRING = '''\
"""Passports that run out."""

import datetime
from collections.abc import Iterator

from domains.travel.state import trips
from uac import Alert, critical


def check(today: datetime.date) -> Iterator[Alert]:
    """A passport must outlast the trip.

    By six months.
    """
    for trip in trips:
        if trip.starts_on < today and trip.passport is not None:
            yield critical(f"{trip.destination} is over", evidence=[trip])
'''

EXPIRING_TESTS = """\
import datetime

from constraints import expiring
from domains.travel.schema import Trip
from uac import Ref
from uac.testing import run_check


def test_speaks() -> None:
    trip = Trip(
        key="t", destination="Oslo", starts_on=datetime.date(2020, 1, 1), passport=Ref("p")
    )
    assert run_check(expiring, today=datetime.date(2021, 1, 1), trips=[trip])


def test_is_silent() -> None:
    assert not run_check(expiring, today=datetime.date(2021, 1, 1), trips=[])
"""


def rich_project() -> Project:
    return project_with(
        define_enum("identity", "Color", RED="red", WINE="wine \u202e red"),
        define_enum("travel", "Color", BLUE=1, GREEN=2),
        define("identity", "Visa", {"country": "str", "fee": "decimal.Decimal"}, kind="object"),
        define("identity", "Passport", {"number": "str", "color": "Color", "visas": "list[Visa]"}),
        # A class with the same name as one of another domain, and references to both.
        define("travel", "Passport", {"note": "str"}, collection="own_passports"),
        define("travel", "Stop", {"at": "datetime.datetime", "by": "Color"}, kind="object"),
        define(
            "travel",
            "Trip",
            {
                "destination": "str",
                "starts_on": "datetime.date",
                "leaves_at": "datetime.time | None",
                "passport": "Ref[identity.Passport] | None",
                "own": "Ref[Passport] | None",
                "after": "Ref[Trip] | None",
                "stops": "list[Stop] | None",
                "cost": "float | decimal.Decimal | None",
                "unknown": "object | None",
                "nothing": "list[object] | None",
            },
            doc='A trip: "there" and back \\ again.',
        ),
        # Fields that hide builtins, modules, classes, and a class of another domain.
        define(
            "travel",
            "Odd",
            {
                "date": "datetime.date | None",
                "list": "list[str] | None",
                "str": "list[list[int]]",
                "int": "float",
                "type": "str",
                "id": "int",
                "object": "object | None",
                "Passport": "Ref[Passport] | None",
                "Trip": "Ref[identity.Passport] | None",
                "Stop": "Stop | None",
                "Color": "Color | None",
                "more": "list[Ref[Trip]]",
            },
        ),
        add_field("travel", "Odd", "tags", "list[str]", default=[]),
        add_field("travel", "Trip", "color", "Color", default="GREEN"),
        add_field("travel", "Trip", "since", "PartialDate", default="2021-11"),
        # Defined after the class that uses it.
        define("travel", "Guest", {"name": "str", "knows": "list[Guest]"}, kind="object"),
        add_field("travel", "Trip", "guest", "Guest | None"),
        # A circle: identity refers to travel, which refers to identity.
        add_field("identity", "Passport", "used_for", "list[Ref[travel.Trip]] | None"),
        add(
            "identity",
            "Passport",
            "p-1",
            number="X",
            color="wine \u202e red",
            visas=[{"country": "Übersee", "fee": "12.50"}],
            used_for=["trip-1"],
        ),
        add("travel", "Passport", "p-1", note="ours"),
        add(
            "travel",
            "Trip",
            "trip-1",
            destination="Oslo",
            starts_on="2025-01-31",
            leaves_at="23:45",
            passport="p-1",
            own="p-1",
            stops=[
                {"at": "2025-01-31T10:00:00+05:30", "by": 2},
                {"at": "2025-02-01 00:00Z", "by": 1},
            ],
            cost=3,
            guest={"name": "Ann", "knows": [{"name": "Bob", "knows": []}]},
            since="2019",
        ),
        add(
            "travel",
            "Odd",
            "odd",
            list=["a"],
            str=[[1], []],
            int=1e300,
            type="t",
            id=2**60,
            Passport="p-1",
            Trip="p-1",
            Stop={"at": "2025-01-31T10:00", "by": "BLUE"},
            Color="BLUE",
            more=["trip-1"],
            tags=["x"],
        ),
        {
            **add("travel", "Trip", "next", destination="Rome", starts_on="2026-01-01"),
            "collection": "next_trip",
            "singleton": True,
        },
        write("expiring", EXPIRING, EXPIRING_TESTS),
    )
