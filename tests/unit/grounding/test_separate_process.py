"""Long checks run in a separate process: with the same result, a limit, and a low priority."""

import datetime
import resource
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal

import pytest

from memory.project.values import EnumMember, PartialDate, Record, RecordId, Ref, Struct, Value
from workers.findings import Finding
from workers.grounding import separate_process
from workers.grounding.changed_values import RecordUpdate
from workers.grounding.retired_records import Retirement
from workers.grounding.separate_process import Cited
from workers.grounding.values_in_entries import Claim, Source

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
# A million characters, nearly all of which may be a number or a date.
SLOW = "1/" * 500_000


def entry(text: str, seq: int = 1) -> Source:
    return Source(seq, text, NOON, {"said": text[:20]}, "Ada")


def record_id(number: int) -> RecordId:
    return RecordId("travel", "trips", f"t{number}")


def record(fields: Mapping[str, Value], *sources: int) -> Record:
    return Record("Trip", "t0", dict(fields), sources)


def cited(text: str, *, claims: int = 1, updates: int = 0) -> Cited:
    """Claims and updates that cite an entry with this text, which does not support them."""
    before, after = record({"to": "Rome", "cost": 10}, 2), record({"to": "Oslo", "cost": 4321}, 2)
    values: dict[str, Value] = {
        "to": "Oslo in Norway, on Tuesday",
        "cost": Decimal("77.5"),
        "on": datetime.date(2031, 5, 6),
        "at": datetime.datetime(2031, 5, 6, 7, 8, tzinfo=datetime.UTC),
        "in_year": PartialDate("2031-05"),
        "with_whom": Ref("people.Person", "bo"),
        "kind": EnumMember("Kind", "FAR"),
        "parts": [Struct("Part", {"legs": 3456})],
    }
    return Cited(
        claims=[
            Claim(record_id(one), [1], values, {"cost": "it follows"}) for one in range(claims)
        ],
        updates=[
            RecordUpdate(
                record_id(one), before, after, {"to": [1], "cost": [1]}, ["to", "cost"], {2}
            )
            for one in range(updates)
        ],
        retirements=[Retirement(record_id(0), before, [1], {2})],
        added=[record({"to": "Lima"}, 1)],
        sources={1: entry(text), 2: entry("I go to Rome.", 2)},
        read=frozenset({"cost"}),
        time_zone="Europe/Berlin",
        is_of_model=True,
    )


def codes(found: list[Finding]) -> list[str]:
    return [one.code for one in found]


def test_short_texts_are_checked_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *how, **more: pytest.fail("a process"))

    found = separate_process.unfounded(cited("I am at home.", updates=1))

    assert {"ungrounded_number", "ungrounded_date", "ungrounded_update"} <= {*codes(found)}


def test_in_a_process_of_its_own_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    much = cited("Ich bin „zu Hause“ 🏠. ", claims=2, updates=2)
    here = separate_process.unfounded(much)
    monkeypatch.setattr(separate_process, "QUICK_CHARACTERS", 0)

    assert separate_process.unfounded(much) == here


def test_each_is_counted_as_often_as_it_is_read() -> None:
    once = cited("x" * 1000).characters()

    assert cited("x" * 1000, claims=10, updates=10).characters() > 20 * 1000 > 10 * once / 3


def test_long_check_ends_outside_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(separate_process, "CPU_SECONDS", 1)
    slow = cited(SLOW, claims=100, updates=100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    before_apart = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime

    found = separate_process.unfounded(slow)

    here = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    there = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_apart
    assert codes(found) == ["too_much_to_read"]
    assert found[0].blocking
    assert "more than 1 s" in found[0].message
    assert there > 0.5
    assert here < there / 4


def test_check_that_takes_all_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "MEMORY_BYTES", 1024)

    found = separate_process.unfounded(cited("It is Monday, and I stay at home. " * 30_000))

    assert codes(found) == ["too_much_to_read"]
    assert "takes too much memory" in found[0].message


def test_a_process_that_fails_says_nothing_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(separate_process.ReadingFailed, match="exited with 1"):
        separate_process.unfounded(cited(SLOW))


def test_busy_machine_reports_nothing_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "WALL_SECONDS", 0.01)
    with pytest.raises(separate_process.ReadingFailed, match="no result within"):
        separate_process.unfounded(cited(SLOW, claims=20))
