"""A day as a bound: its first and last moment in a time zone; also where clocks change."""

import datetime

import pytest

from memory.kernel.instants import BadMoment, span_in


def utc(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("zone", "day", "first", "last"),
    [
        ("UTC", "2026-03-31", "2026-03-31T00:00", "2026-03-31T23:59:59.999999"),
        ("Europe/Berlin", "2026-03-31", "2026-03-30T22:00", "2026-03-31T21:59:59.999999"),
        # 23 hours and 25 hours
        ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00", "2026-03-29T21:59:59.999999"),
        ("Europe/Berlin", "2026-10-25", "2026-10-24T22:00", "2026-10-25T22:59:59.999999"),
        # the clocks go from 00:00 to 01:00, so that midnight does not exist
        ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00", "2026-04-24T20:59:59.999999"),
        # the clocks go from 01:00 to 00:00, so that midnight comes twice
        ("America/Havana", "2026-11-01", "2026-11-01T04:00", "2026-11-02T04:59:59.999999"),
        # "always": cut where the calendar ends
        ("America/New_York", "9999-12-31", "9999-12-31T05:00", "9999-12-31T23:59:59.999999"),
        ("Asia/Tokyo", "0001-01-01", "0001-01-01T00:00", "0001-01-01T14:41:00.999999"),
    ],
)
def test_a_day_is_all_of_its_time(zone: str, day: str, first: str, last: str) -> None:
    span = span_in(zone, day)

    assert span.is_day
    assert (span.first, span.last) == (utc(first), utc(last))
    # The days follow each other without a gap.
    if day != "9999-12-31":
        following = datetime.date.fromisoformat(day) + datetime.timedelta(days=1)
        assert span_in(zone, following.isoformat()).first == span.after


def test_a_day_that_a_country_skipped_has_no_time() -> None:
    """Samoa went from 29 to 31 December 2011."""
    skipped, before = (span_in("Pacific/Apia", f"2011-12-{day}") for day in (30, 29))

    assert skipped.last < skipped.first
    assert before.after == skipped.first == span_in("Pacific/Apia", "2011-12-31").first


def test_a_time_is_one_moment_in_the_users_zone() -> None:
    for text in ("2026-03-31T15:00", "2026-03-31 15:00:00", "2026-03-31T13:00Z"):
        span = span_in("Europe/Berlin", text)

        assert not span.is_day
        assert span.first == span.last == span.after == utc("2026-03-31T13:00")


@pytest.mark.parametrize(
    "text",
    # forms that a parser takes for midnight without saying so, and no times at all
    ["20260331", "2026-W14-2", "2026-W14", "2026-02-30", "2026-03", "0000-00-00", "soon", ""],
)
def test_invalid_instant_is_refused(text: str) -> None:
    with pytest.raises(BadMoment, match="2026-03-01"):
        span_in("Europe/Berlin", text)
