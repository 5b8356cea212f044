"""Date arithmetic of the `uac` library."""

import datetime
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_image.uac import (
    Alert,
    add_months,
    birthday,
    full_months,
    hours_between,
    info,
    user_zone,
)
from sandbox_image.uac.reckoning import live_in
from sandbox_image.uac.testing import run_check

DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))
date = datetime.date


@pytest.mark.parametrize(
    ("day", "months", "there"),
    [
        (date(2026, 1, 31), 1, date(2026, 2, 28)),
        (date(2024, 1, 31), 1, date(2024, 2, 29)),
        (date(2026, 3, 31), -1, date(2026, 2, 28)),
        (date(2026, 11, 30), 3, date(2027, 2, 28)),
        (date(2026, 1, 15), -1, date(2025, 12, 15)),
        (date(2026, 5, 31), 0, date(2026, 5, 31)),
        (date(2024, 2, 29), 12, date(2025, 2, 28)),
    ],
)
def test_months_are_added_and_end_with_the_month(
    day: datetime.date, months: int, there: datetime.date
) -> None:
    assert add_months(day, months) == there


def test_a_moment_stays_one() -> None:
    at = datetime.datetime(2026, 1, 31, 8, 30, tzinfo=datetime.UTC)
    assert add_months(at, 1) == datetime.datetime(2026, 2, 28, 8, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("start", "end", "months"),
    [
        (date(2026, 1, 15), date(2026, 2, 14), 0),
        (date(2026, 1, 15), date(2026, 2, 15), 1),
        (date(2026, 1, 31), date(2026, 2, 28), 1),
        (date(2026, 1, 31), date(2026, 3, 30), 1),
        (date(2026, 1, 15), date(2026, 1, 14), -1),
        (date(1990, 6, 5), date(2026, 6, 4), 36 * 12 - 1),
    ],
)
def test_full_months_have_passed(start: datetime.date, end: datetime.date, months: int) -> None:
    assert full_months(start, end) == months


@given(DAYS, DAYS)
def test_no_more_full_months_fit(start: datetime.date, end: datetime.date) -> None:
    months = full_months(start, end)
    assert add_months(start, months) <= end < add_months(start, months + 1)


@pytest.mark.parametrize(
    ("year", "leap_day", "there"),
    [
        (2026, "28 February", date(2026, 2, 28)),
        (2026, "1 March", date(2026, 3, 1)),
        (2028, "28 February", date(2028, 2, 29)),
        (2028, "1 March", date(2028, 2, 29)),
    ],
)
def test_a_birthday_on_29_february_is_chosen(
    year: int, leap_day: Literal["28 February", "1 March"], there: datetime.date
) -> None:
    assert birthday(date(2000, 2, 29), year, leap_day=leap_day) == there
    assert birthday(date(2000, 5, 31), year, leap_day=leap_day) == date(year, 5, 31)


@pytest.fixture
def berlin() -> Iterator[None]:
    previous = live_in("Europe/Berlin")
    yield
    live_in(previous)


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ((2026, 3, 28, 12), (2026, 3, 29, 12), 23),  # clocks go forward
        ((2026, 10, 24, 12), (2026, 10, 25, 12), 25),  # and back
        ((2026, 6, 1, 22), (2026, 6, 2, 6, 30), 8.5),
        ((2026, 6, 2), (2026, 6, 1), -24),
    ],
)
def test_hours_pass_where_the_user_lives(
    berlin: None, start: tuple[int, ...], end: tuple[int, ...], hours: float
) -> None:
    first, last = (
        datetime.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001
        for parts in (start, end)
    )
    assert hours_between(first, last) == hours
    zone = ZoneInfo("Europe/Berlin")
    assert hours_between(first.replace(tzinfo=zone), last.replace(tzinfo=zone)) == hours
    assert hours_between(first, last.replace(tzinfo=zone)) == hours


def test_a_test_says_where_the_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("constraints.zone")

    def check(now: datetime.datetime) -> Iterator[Alert]:
        yield info(str(user_zone()), key="zone")

    module.__dict__["check"] = check
    monkeypatch.setitem(sys.modules, module.__name__, module)
    utc = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
    tokyo = utc.astimezone(ZoneInfo("Asia/Tokyo"))
    found = [
        run_check(module, now=utc)[0].message,
        run_check(module, now=tokyo)[0].message,
        run_check(module, now=utc, time_zone="Asia/Tokyo")[0].message,
    ]
    assert found == ["UTC", "Asia/Tokyo", "Asia/Tokyo"]
    assert str(user_zone()) == "UTC"
