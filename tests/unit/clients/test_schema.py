"""A user's classes in the product's code: the module that `userascode pull` writes."""

import asyncio
import datetime
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import userascode
from userascode import AsyncClient, Client
from userascode.schema import SchemaChanged
from userascode.typed_json import row_of

OPTIONS = ("--strict", "--config-file", "", "--follow-imports", "silent")
STATE = {
    "version": 3,
    "as_of": None,
    "domains": {
        "travel": {
            "classes": {
                "Trip": {
                    "to": "str",
                    "cost": "int | decimal.Decimal",
                    "starts": "datetime.date | None",
                    "status": "Status",
                    "passport": "Ref[identity.Passport] | None",
                    "legs": "list[Leg]",
                    "days": "dict[str, float]",
                    "since": "PartialDate",
                },
                "Leg": {"number": "int"},
                "Note": {"text": "str"},
            },
            "enums": {"Status": {"OPEN": "open", "DONE": "done"}},
            "collections": {
                "trips": {"class": "Trip", "count": 1},
                "notes": {"class": "Note", "count": 0},
            },
            "singletons": {},
        },
        "identity": {
            "classes": {"Passport": {"number": "str"}, "Note": {}},
            "enums": {},
            "collections": {"notes": {"class": "Note", "count": 0}},
            "singletons": {"passport": "Passport"},
        },
    },
}
TRIP: Mapping[str, Any] = {
    "to": "Rome",
    "cost": {"$decimal": "12.50"},
    "starts": {"$date": "2026-01-02"},
    "status": {"$enum": "Status.OPEN", "value": "open"},
    "passport": {"$ref": "Passport", "key": "p"},
    "legs": [{"$object": "Leg", "fields": {"number": {"$int": "9007199254740993"}}}],
    "days": {"$dict": [["$monday", 1]]},
    "since": {"$partial_date": "2021-11"},
}
PRODUCT = """
from schema import Memory, Status


def total(memory: Memory) -> float:
    first = memory.trips[0]
    number = memory.passport.number if memory.passport else ""
    assert first.status is Status.OPEN
    return float(sum(trip.cost for trip in memory.trips)) + len(number)
"""


def memory_of(tmp_path: Path, trip: Mapping[str, Any] = TRIP) -> Any:
    """Return the memory of a user who has one trip, through the written module."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/state/"):
            return httpx.Response(200, json=STATE)
        records = [{"$record": "Trip", "key": "rome", "sources": [1], "fields": trip}]
        is_trips = request.url.path.endswith("/travel/trips/")
        page = {"version": 3, "as_of": None, "count": 1, "next": None}
        return httpx.Response(200, json={**page, "records": records if is_trips else []})

    ada = Client("https://uac.example.com", "k", transport=httpx.MockTransport(answer)).user("ada")
    (tmp_path / "schema.py").write_text(ada.schema())
    spec = importlib.util.spec_from_file_location("schema", tmp_path / "schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["schema"] = module
    spec.loader.exec_module(module)
    return module.Memory(ada)


def test_records_are_objects_of_their_classes(tmp_path: Path) -> None:
    memory = memory_of(tmp_path)

    [trip] = memory.trips

    assert (trip.key, trip.sources, trip.to, trip.cost) == ("rome", [1], "Rome", Decimal("12.50"))
    assert trip.starts == datetime.date(2026, 1, 2)
    assert trip.status.name == "OPEN"
    assert trip.passport.key == "p"
    assert trip.legs[0].number == 9007199254740993
    assert (trip.days, trip.since) == ({"$monday": 1.0}, "2021-11")
    assert memory.passport is None
    assert memory.travel_notes == memory.identity_notes == []


def test_a_record_of_another_version_says_to_pull_again(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {**TRIP, "legs": "none"})

    with pytest.raises(SchemaChanged, match="userascode pull"):
        memory.trips  # noqa: B018 - reads them


@pytest.mark.parametrize(
    ("code", "errors"),
    [
        (PRODUCT, ""),
        (PRODUCT.replace("trip.cost", "trip.price"), '"Trip" has no attribute "price"'),
        (PRODUCT.replace("memory.trips[0]", "memory.trip"), 'has no attribute "trip"'),
    ],
    ids=["right", "wrong field", "wrong collection"],
)
def test_products_that_use_it_are_type_checked(tmp_path: Path, code: str, errors: str) -> None:
    memory_of(tmp_path)
    (tmp_path / "product.py").write_text(code)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, "product.py", "schema.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(userascode.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (checked.returncode == 0) is (errors == ""), checked.stdout
    assert errors in checked.stdout


def test_both_clients_write_the_same_module() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=STATE))

    async def written() -> str:
        async with AsyncClient("https://uac.example.com", "k", transport=transport) as client:
            return await client.user("ada").schema()

    client = Client("https://uac.example.com", "k", transport=transport)
    assert asyncio.run(written()) == client.user("ada").schema()


def test_a_record_is_a_row_of_plain_values() -> None:
    record = {"$record": "Trip", "key": "rome", "sources": [1], "fields": TRIP}

    assert row_of(record) == {
        "key": "rome",
        "to": "Rome",
        "cost": "12.50",
        "starts": "2026-01-02",
        "status": "open",
        "passport": {"key": "p"},
        "legs": [{"number": "9007199254740993"}],
        "days": {"$monday": 1},
        "since": "2021-11",
    }
    assert row_of({"user_id": "ada"}) == {"user_id": "ada"}
