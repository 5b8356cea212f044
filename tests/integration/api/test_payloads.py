"""Payloads as other systems send them: every record is taken, and every value is found by code.

The recorded groups come from UAC_DATA_DIR (real_payloads.jsonl); those written here are invented.
"""

import datetime
import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser

pytestmark = pytest.mark.django_db

RECORDED = Path(os.environ.get("UAC_DATA_DIR", "")) / "real_payloads.jsonl"

GROUPS: dict[str, list[dict[str, Any]]] = {
    "WorkoutSession": [
        {
            "id": 7001,
            "@type": "Run",
            "Start Time": "2026-03-01T06:10:00+01:00",
            "distance (km)": 10.2,
            "heart-rate": {"avg": 151, "max": "n/a", "zones": {"1": 300, "2": 1200}},
            "laps": [{"n": 1, "pace": "5:10"}, {"n": 2, "pace": 312}],
        },
        {
            "id": "7002",
            "@type": "Swim",
            "Start Time": "2026-03-02",
            "distance (km)": "1,5",
            "heart-rate": None,
            "laps": ["lap 1", {"n": 1, "pace": "2:05", "stroke": ["free", 3]}],
        },
    ],
    "Order": [
        {
            "number": 18446744073709551616,
            "total": "12.50",
            "items": {"SKU-1": {"qty": 1}, "SKU-2": {"qty": "two"}},
            "notes": "",
            "shipped": False,
            "tracking": [],
        },
        {
            "number": 2,
            "total": 12.5,
            "items": {},
            "notes": None,
            "shipped": "",
            "tracking": [[1, "x"]],
        },
    ],
    "HouseholdRow": [
        {
            "Día": "01/02/2026",
            "Überweisung an": "Wasserwerk",
            "金額": 1200,
            "": "-",
            "Betrag (€)": -3.2,
        },
        {"Día": 2, "Überweisung an": ["a", "b"], "金額": "千二百", "": 0, "Betrag (€)": "–3,20"},
    ],
    "Episode": [
        {"self": "s", "class": "c", "key": "k", "sources": [1], "set_aside": {"a": 1}, "__v": 0},
        {"self": 1, "class": None, "key": [], "sources": "all", "set_aside": 5, "__v": "0"},
    ],
    "Reading": [{"v": 1e-320}, {"v": 3}, {"v": True}, {"v": {}}, {"v": [None, 1, "1", {"a": []}]}],
}


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return the recorded payloads by group, each with its type."""
    if not RECORDED.is_file():
        return {}
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return {f"{one['group']}:{one['type']}": one["payloads"] for one in lines}


def plain(value: Any) -> Any:
    """Return JSON, typed or not, in one form: without nulls, numbers and times as values."""
    match value:
        case {"$date": text} | {"$int": text} | {"$datetime": text}:
            return plain(text)
        case {"$dict": pairs}:
            return plain(dict(pairs))
        case dict():
            return {key: plain(item) for key, item in value.items() if item is not None}
        case list():
            return [plain(item) for item in value]
        case bool():
            return value
        case int() | float():
            return Decimal(str(value))
        case str() if re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", value):
            return Decimal(value)
        case str() if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T", value):
            return datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    return value


@pytest.mark.parametrize("group", [*GROUPS, *recorded()])
def test_every_payload_is_taken_and_every_value_found_by_code(
    api: APIClient, user: MemoryUser, work: Callable[[], None], group: str
) -> None:
    payloads = {**GROUPS, **recorded()}[group]
    type_ = group.rpartition(":")[2]
    entries = [{"kind": "record", "type": type_, "data": data} for data in payloads]

    assert api.post("/v1/users/ada/entries/", {"entries": entries}).status_code == 202
    work()

    settled = api.get("/v1/users/ada/entries/").data["results"]
    assert {(entry["state"], entry["reason"]) for entry in settled} == {("covered", None)}
    (collection,) = api.get("/v1/users/ada/state/").data["domains"]["general"]["collections"]
    answer = computed(api, work, f"[original_data(one) for one in general.{collection}]")
    assert plain(answer) == plain(payloads)


def computed(api: APIClient, work: Callable[[], None], code: str) -> Any:
    """Return the value of a query."""
    run = api.post("/v1/users/ada/query/?wait=0", {"code": code}).data["id"]
    work()
    found = api.get(f"/v1/runs/{run}/").data
    assert found["outcome"] == "ok", found["error"]
    return found["output"]["value"]


def test_the_same_payload_sent_again_changes_no_field(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    payload = GROUPS["WorkoutSession"][0]
    for _ in range(2):
        entry = {"kind": "record", "type": "Workout", "data": payload}
        assert api.post("/v1/users/ada/entries/", entry).status_code == 202
        work()

    first, second = computed(api, work, "workouts")
    assert first["fields"] == second["fields"]


def test_a_widened_field_takes_in_what_was_set_aside(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    due = ["2026-05-31", "TBD", "2026-06"]
    entries = [{"kind": "record", "type": "Task", "data": {"due": one}} for one in due]
    api.post("/v1/users/ada/entries/", {"entries": entries})
    work()
    assert "2 set aside" in api.get("/v1/users/ada/manifest/").data["text"]

    edit = {
        "op": "widen_field",
        "domain": "general",
        "class_name": "Task",
        "name": "due",
        "type": "datetime.date | PartialDate | None",
    }
    assert api.post("/v1/users/ada/checkpoints/?wait=0", {"edits": [edit]}).status_code == 202
    work()

    assert "1 set aside" in api.get("/v1/users/ada/manifest/").data["text"]
    assert computed(api, work, "[task.due for task in tasks]") == [
        {"$date": "2026-05-31"},
        None,
        {"$partial_date": "2026-06"},
    ]


def test_times_of_one_field_can_be_compared(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    MemoryUser.objects.filter(pk=user.pk).update(time_zone="Asia/Tokyo")
    times = ["2026-05-01T09:00:00", "2026-05-01T01:00:00Z", "2026-05-01T09:30:00+09:00"]
    entries = [{"kind": "record", "type": "Visit", "data": {"at": one}} for one in times]
    api.post("/v1/users/ada/entries/", {"entries": entries})
    work()

    code = "[[visit.key for visit in sorted(visits, key=lambda visit: visit.at)], {}]".format(
        "all(visit.at - now for visit in visits)"
    )
    assert computed(api, work, code) == [["visit-1", "visit-3", "visit-2"], True]
