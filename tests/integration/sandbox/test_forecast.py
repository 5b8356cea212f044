"""Forecasts in a sandbox: each constraint is called as often as needed, and by itself."""

import datetime
from typing import Any

from tests.integration.sandbox.conftest import NOW, PROJECT
from tests.integration.sandbox.test_workspace_constraints import BINDINGS, PATH, SOURCE
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.results import ConstraintForecast

HEAD = """\
import datetime
from collections.abc import Iterator
from uac import Alert, critical, info, warning
from domains.travel.state import trips

"""
REMEMBERS = (
    HEAD
    + """\
asked: list[int] = []
def check(today: datetime.date) -> Iterator[Alert]:
    asked.append(len(str(today)))
    if len(asked) > 1:
        yield info("again", key=str(today))
"""
)
CHANGES_STATE = (
    HEAD
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        trip.name += "!"
        yield info(trip.name, key=str(today))
"""
)
COUNTS = (
    HEAD
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        if trip.on is None:
            continue
        days = (datetime.date(2026, 6, 1) - today).days
        if days in (30, 7):
            yield (critical if days == 7 else warning)(f"in {days} days", evidence=[trip])
"""
)
ENDS = (
    HEAD
    + """\
import sys
def check(today: datetime.date) -> Iterator[Alert]:
    if today.month == 5:
        sys.exit(1)
    return iter(())
"""
)


def look_ahead(
    sandbox: Sandbox, sources: dict[str, str], **options: Any
) -> dict[str, ConstraintForecast]:
    own = {f"constraints/{name}.py": text for name, text in sources.items()}
    sandbox.load({**PROJECT, **own, **options.pop("files", {})})
    found = sandbox.forecast(
        [*own, *options.get("bindings", {})],
        now=NOW,
        until=NOW + datetime.timedelta(days=365),
        time_zone="Europe/Berlin",
        **options,
    )
    return {one.path.split("/")[-1].removesuffix(".py"): one for one in found.results}


def test_only_days_on_which_something_changes_are_told(sandbox: Sandbox) -> None:
    found = look_ahead(sandbox, {"counts": COUNTS})["counts"]
    assert [(change.at, [rank for _, rank in change.findings]) for change in found.changes] == [
        ("2026-03-02", []),
        ("2026-05-02", ["warning"]),
        ("2026-05-03", []),
        ("2026-05-25", ["critical"]),
        ("2026-05-26", []),
    ]
    assert (found.error, found.until) == (None, None)
    assert found.calls < 30


def test_constraint_changing_its_records_is_known_for_a_day(
    sandbox: Sandbox,
) -> None:
    sources = {"a": CHANGES_STATE, "b": REMEMBERS, "c": COUNTS}
    found = look_ahead(sandbox, sources)
    assert (found["a"].calls, found["b"].calls) == (1, 1)
    assert found["a"].until == found["b"].until == "2026-03-03"
    assert found["c"].until is None
    assert len(found["c"].changes) == 5


def test_constraint_that_kills_its_process_leaves_others_running(sandbox: Sandbox) -> None:
    found = look_ahead(sandbox, {"a": ENDS, "b": COUNTS})
    assert found["a"].error is not None
    assert found["a"].changes == ()
    assert len(found["b"].changes) == 5


def test_slow_constraint_is_known_until_some_day(sandbox: Sandbox) -> None:
    slow = (
        HEAD
        + """\
def check(today: datetime.date) -> Iterator[Alert]:
    number = 0
    while number < 5_000_000:
        number += 1
    if str(today) and number < 0:
        yield info("never", key="never")
"""
    )
    limits = Limits(wall_seconds=3, cpu_seconds=3)  # of which it looks for one half
    found = look_ahead(sandbox, {"slow": slow}, limits=limits)["slow"]
    assert found.error is None
    assert not_none(found.until) < "2027-03-01"


def test_workspace_constraint_is_given_its_records(sandbox: Sandbox) -> None:
    files = {PATH: SOURCE}
    found = look_ahead(sandbox, {}, files=files, bindings=BINDINGS)["soon"]
    assert found.error is None
    assert found.findings[0].records == (("travel", "trips", "t-1"),)
    assert len(found.changes) == 1
