"""Instants: parsing a day or a time in a user's time zone."""

import datetime
import re
import zoneinfo

from django.utils.dateparse import parse_datetime

from memory.models import MemoryUser

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
NOON = datetime.time(12)
MOMENT_FORMS = (
    "Give a day (2026-03-01), or a date and time (2026-03-01T09:00 in the user's time zone, or"
    " 2026-03-01T09:00+01:00 with a UTC offset)."
)


class BadMoment(ValueError):
    """The text doesn't specify a valid day, time, entry or version."""


def instant_of(user: MemoryUser, text: str) -> datetime.datetime:
    """Parse a day, which stands for noon on that day, or a date and time.

    A time without a UTC offset is interpreted in the user's time zone. Raises BadMoment if the text
    is neither.
    """
    return instant_in(user.time_zone, text)


def instant_in(time_zone: str, text: str) -> datetime.datetime:
    """Like `instant_of`, but for the given time zone."""
    try:
        zone = zoneinfo.ZoneInfo(time_zone)
        if _DAY.fullmatch(text):
            day = datetime.date.fromisoformat(text)
            moment: datetime.datetime | None = datetime.datetime.combine(day, NOON)
        else:
            moment = parse_datetime(text)
        if moment is not None:
            moment = moment.replace(tzinfo=moment.tzinfo or zone)
            moment.astimezone(zone)  # fails if the time is past the end of the calendar
            return moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        pass
    raise BadMoment(MOMENT_FORMS)
