"""Tests for stale_preference: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import stale_preference

TODAY = datetime.date(2026, 3, 10)


def preference(
    key: str,
    confirmed_on: datetime.date | datetime.datetime | PartialDate | None,
    value: str | None = "window",
    subject: str = "seat",
) -> stale_preference.Preference:
    return stale_preference.Preference(
        key=key, subject=subject, confirmed_on=confirmed_on, value=value
    )


def alerts(*preferences: stale_preference.Preference, today: datetime.date = TODAY) -> list[Alert]:
    return run_check(stale_preference, today=today, preferences=list(preferences))


def test_says_what_was_preferred_and_when() -> None:
    old = preference("p-1", datetime.date(2025, 1, 5))
    (alert,) = alerts(old)
    assert alert.severity is Severity.INFO
    assert alert.message == (
        "The preference for seat “window” from 2025-01-05 has not been confirmed for a year"
    )
    assert alert.evidence == (old,)


def test_boundary_the_day_after_a_year() -> None:
    for confirmed_on, today, speaks in (
        (datetime.date(2025, 3, 10), datetime.date(2026, 3, 9), False),
        (datetime.date(2025, 3, 10), datetime.date(2026, 3, 10), True),
        (datetime.date(2024, 2, 29), datetime.date(2025, 2, 27), False),
        (datetime.date(2024, 2, 29), datetime.date(2025, 2, 28), True),
        (datetime.datetime(2025, 3, 10, 23), datetime.date(2026, 3, 10), True),
        (PartialDate("2025-03"), datetime.date(2026, 3, 30), False),
        (PartialDate("2025-03"), datetime.date(2026, 3, 31), True),
        (PartialDate("2025"), datetime.date(2026, 12, 30), False),
        (PartialDate("2025"), datetime.date(2026, 12, 31), True),
        (None, datetime.date(2030, 1, 1), False),
    ):
        found = alerts(preference("p", confirmed_on), today=today)
        assert bool(found) is speaks, (confirmed_on, today)


def test_a_newer_one_replaces_another_at_once() -> None:
    window = preference("p-1", datetime.date(2026, 1, 1))
    aisle = preference("p-2", datetime.date(2026, 3, 10), "aisle", subject=" Seat ")
    (alert,) = alerts(aisle, window)
    assert alert.message == (
        "The preference for seat “window” from 2026-01-01 is replaced by the newer preference for"
        " Seat “aisle” from 2026-03-10"
    )
    assert alert.evidence == (window, aisle)


def test_one_that_is_said_again_is_confirmed() -> None:
    old = preference("p-1", datetime.date(2020, 1, 1))
    assert alerts(old, preference("p-2", datetime.date(2026, 1, 1), " Window")) == []


def test_silent_where_it_is_not_in_force_or_holds_for_ever() -> None:
    day = datetime.date(2020, 1, 1)
    off = stale_preference.Preference(key="a", subject="seat", confirmed_on=day, active=False)
    ever = stale_preference.Preference(key="b", subject="food", confirmed_on=day, permanent=True)
    assert alerts(off, ever) == []


def test_boundary_what_is_said_of_tomorrow_is_not_yet() -> None:
    window = preference("p-1", datetime.date(2026, 1, 1))
    assert alerts(window, preference("p-2", datetime.date(2026, 3, 11), "aisle")) == []


def test_without_a_value_and_in_the_order_of_the_subjects() -> None:
    day = datetime.date(2020, 1, 1)
    found = alerts(preference("b", day, None, "tea"), preference("a", day, None, "music"))
    assert [alert.message for alert in found] == [
        "The preference for music from 2020-01-01 has not been confirmed for a year",
        "The preference for tea from 2020-01-01 has not been confirmed for a year",
    ]
