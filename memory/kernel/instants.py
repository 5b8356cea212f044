"""Instants: parsing a day or a time in a user's time zone.

A day stands for all of its time. Whoever needs a single moment decides which end of the day it is:
`as_of` and `at` mean the end of the day, and a period's `since` means its start.
"""

import datetime
import re
import zoneinfo
from dataclasses import dataclass

from django.utils.dateparse import parse_datetime

from memory.kernel.models.users import MemoryUser

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FIRST = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)
# The resolution of timestamps, both in Python and in PostgreSQL.
RESOLUTION = datetime.timedelta.resolution
MOMENT_FORMS = (
    "Give a day (2026-03-01), or a date and time (2026-03-01T09:00 in the user's time zone, or"
    " 2026-03-01T09:00+01:00 with a UTC offset)."
)


class BadMoment(ValueError):
    """The text doesn't specify a valid day, time, entry or version."""


@dataclass(frozen=True)
class Span:
    """The time that a text specifies, in UTC: a day's first and last moment, or a single moment.

    Timestamps have a resolution of a microsecond, so that `first <= time <= last` selects exactly
    the times within a day, `time > last` the times after it, and `time < first` those before it.
    """

    first: datetime.datetime
    last: datetime.datetime

    @property
    def is_day(self) -> bool:
        """Return whether this is a whole day rather than a single moment."""
        return self.first != self.last

    @property
    def after(self) -> datetime.datetime:
        """Return the first moment after the day or, for a single moment, the moment itself.

        As the end of a period, it excludes a moment but includes the whole of a day.
        """
        return min(self.last, _LAST - RESOLUTION) + RESOLUTION if self.is_day else self.last

    def end_by(self, now: datetime.datetime) -> datetime.datetime:
        """Return the last moment; for the current day, which has not ended yet, return `now`."""
        return now if self.first <= now < self.last else self.last


def is_day(text: str) -> bool:
    """Return whether the text has the form of a day, such as 2026-03-01."""
    return _DAY.fullmatch(text) is not None


def span_of(user: MemoryUser, text: str) -> Span:
    """Parse a day or a date and time; a time without a UTC offset is in the user's time zone.

    Raises BadMoment if the text is neither.
    """
    return span_in(user.time_zone, text)


def span_in(time_zone: str, text: str) -> Span:
    """Like `span_of`, but for the given time zone."""
    try:
        zone = zoneinfo.ZoneInfo(time_zone)
        if is_day(text):
            return day_in(zone, datetime.date.fromisoformat(text))
        # Shorter texts are at most days in other forms (20260301), which would mean midnight.
        if len(text) > len("2026-03-01") and (moment := parse_datetime(text)) is not None:
            moment = moment.replace(tzinfo=moment.tzinfo or zone)
            moment.astimezone(zone)  # fails if the time is past the end of the calendar
            moment = moment.astimezone(datetime.UTC)
            return Span(moment, moment)
    except (ValueError, OverflowError):
        pass
    raise BadMoment(MOMENT_FORMS)


def day_in(zone: datetime.tzinfo, day: datetime.date) -> Span:
    """Return a day's first and last moment in a time zone.

    People write 0001-01-01 and 9999-12-31 for "always"; outside UTC, these days are cut where the
    calendar ends.
    """
    midnight = datetime.time()
    try:
        first = datetime.datetime.combine(day, midnight, zone).astimezone(datetime.UTC)
    except OverflowError:
        first = _FIRST
    try:
        after = datetime.datetime.combine(day + datetime.timedelta(days=1), midnight, zone)
        last = after.astimezone(datetime.UTC) - RESOLUTION
    except OverflowError:
        last = _LAST
    return Span(first, last)
