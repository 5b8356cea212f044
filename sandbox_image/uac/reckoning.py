"""Date arithmetic: months, birthdays, and hours in the user's time zone.

Nothing here catches an exception or asks for an object's class: forecasts pass in dates and
datetimes that record how they are used, and such code would hide some of those uses.
"""

import calendar
import datetime
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

Day = TypeVar("Day", bound=datetime.date)  # a datetime is also accepted, and a datetime is returned
_HOUR = datetime.timedelta(hours=1)


def add_months(day: Day, months: int) -> Day:
    """Return the same day of the month `months` months later, or the last day of that month.

    One month after 31 January is 28 or 29 February. A negative number goes back in time.
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return day.replace(year=year, month=month + 1, day=min(day.day, last))


def full_months(start: datetime.date, end: datetime.date) -> int:
    """Return how many whole months pass from `start` to `end`.

    This is the largest number for which `add_months(start, number) <= end`. A person's age in years
    is `full_months(born_on, today) // 12`.
    """
    months = (end.year - start.year) * 12 + end.month - start.month
    return months if add_months(start, months) <= end else months - 1


def birthday(
    born_on: datetime.date, year: int, *, leap_day: Literal["28 February", "1 March"]
) -> datetime.date:
    """Return the birthday, in the given year, of a person born on `born_on`.

    `leap_day` is when a person born on 29 February has their birthday in other years.
    """
    if (born_on.month, born_on.day) == (2, 29) and not calendar.isleap(year):
        return datetime.date(year, 3, 1) if leap_day == "1 March" else datetime.date(year, 2, 28)
    return datetime.date(year, born_on.month, born_on.day)


def hours_between(start: datetime.datetime, end: datetime.datetime) -> float:
    """Return how many hours elapse between `start` and `end`, even across daylight-saving changes.

    A time without a time zone is taken to be in the user's time zone.
    """
    return (_in_utc(end) - _in_utc(start)) / _HOUR


def user_zone() -> ZoneInfo:
    """Return the user's time zone; in a test, the zone given by `run_check(…, time_zone=…)`."""
    return ZoneInfo(_zone)


_zone = "UTC"


def live_in(time_zone: str) -> str:
    """Set the user's time zone; return the previous time zone. User code must not call this."""
    global _zone
    previous, _zone = _zone, time_zone
    return previous


def _in_utc(moment: datetime.datetime) -> datetime.datetime:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=user_zone())
    return moment.astimezone(datetime.UTC)
