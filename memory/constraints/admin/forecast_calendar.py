"""The calendar of forecast events on a user's page."""

import calendar
import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.safestring import SafeString

from memory.alerts.models.alerts import Alert, severity_rank
from memory.constraints import forecasts
from memory.constraints.admin.forecasts import alerts_among, event
from memory.constraints.models.forecasts import Forecast
from memory.kernel.admin.display import counted
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.models.large import without_large
from memory.kernel.models.users import MemoryUser

MONTHS = 3
# Maximum number of events listed per day.
LISTED = 20
WEEKDAYS = list(zip(calendar.day_abbr, calendar.day_name, strict=True))


@dataclass(frozen=True)
class Day:
    """A cell in a month's grid; days from adjacent months only fill up the grid."""

    date: datetime.date
    is_in_month: bool
    is_today: bool
    events: Sequence[Mapping[str, Any]]
    alerts: Mapping[str, Alert]

    @property
    def name(self) -> str:
        """The HTML id of the element that lists the day's events."""
        return f"foreseen-{self.date.isoformat()}"

    @property
    def title(self) -> str:
        """The text that screen readers announce for a day with events."""
        return f"{self.date.isoformat()}: {counted(len(self.events), 'event')}"

    @property
    def severity(self) -> str:
        found = [one["severity"] for one in self.events if one["severity"]]
        return max(found, key=severity_rank) if found else ""

    @property
    def listed(self) -> Iterator[SafeString | str]:
        yield from (event(one, self.alerts) for one in self.events[:LISTED])
        more = len(self.events) - LISTED
        if more > 0:
            yield counted(more, "more event")


@dataclass(frozen=True)
class Month:
    """A month of the calendar, as a sequence of weeks."""

    title: str
    weeks: Sequence[Sequence[Day]]

    @property
    def days(self) -> Iterator[Day]:
        """The days of this month that have events."""
        return (day for week in self.weeks for day in week if day.is_in_month and day.events)


@dataclass(frozen=True)
class Calendar:
    """The coming months in the user's time zone, with their forecast events.

    The forecast covers every change up to `known_until`.
    """

    months: Sequence[Month]
    time_zone: str
    known_until: datetime.datetime
    is_current: bool

    @property
    def number(self) -> int:
        return sum(len(day.events) for month in self.months for day in month.days)


@cached_on_row
def forecast_of(user: MemoryUser) -> Forecast | None:
    """Return the user's forecast, or None if the user has no forecast."""
    rows = Forecast.objects.filter(user=user)
    forecast = without_large(rows, "checkpoint", keep=Forecast.LARGE).first()
    if forecast is None or forecast.start is None or forecast.known_until is None:
        return None
    forecast.user = user
    return forecast


def look_up_alerts(user: MemoryUser, rows: QuerySet[Alert]) -> None:
    """Fetch and cache the alerts in `rows` that the forecast events refer to."""
    user.__dict__["_foreseen_alerts"] = alerts_among(user, events_of(user), rows)


def alerts_of(user: MemoryUser) -> Mapping[str, Alert]:
    """Return the alerts that `look_up_alerts` has fetched, keyed by fingerprint."""
    found: Mapping[str, Alert] = user.__dict__.get("_foreseen_alerts", {})
    return found


@cached_on_row
def events_of(user: MemoryUser) -> Sequence[Mapping[str, Any]]:
    """Return the events forecast to occur after the constraints' last run, in order."""
    forecast = forecast_of(user)
    after = user.alerts_instant or (forecast.start if forecast else None)
    if forecast is None or after is None:
        return []
    return forecasts.with_causes(forecasts.coming(forecast, after))


def calendar_of(user: MemoryUser) -> Calendar | None:
    """Return the user's calendar for the coming months, or None if there is no forecast."""
    forecast = forecast_of(user)
    if forecast is None or forecast.known_until is None:
        return None
    zone = ZoneInfo(user.time_zone)
    today = timezone.now().astimezone(zone).date()
    alerts = alerts_of(user)
    by_day: dict[datetime.date, list[Mapping[str, Any]]] = defaultdict(list)
    for one in events_of(user):
        by_day[_day_of(one, zone)].append(one)
    return Calendar(
        [_month(first, today, by_day, alerts) for first in _months(today)],
        user.time_zone,
        forecast.known_until,
        forecast.checkpoint_id == user.head_id,
    )


def _day_of(one: Mapping[str, Any], zone: ZoneInfo) -> datetime.date:
    if one["day"]:
        return datetime.date.fromisoformat(one["day"])
    return datetime.datetime.fromisoformat(one["at"]).astimezone(zone).date()


def _months(today: datetime.date) -> Iterator[datetime.date]:
    first = today.replace(day=1)
    for _ in range(MONTHS):
        yield first
        first = (first + datetime.timedelta(days=31)).replace(day=1)


def _month(
    first: datetime.date,
    today: datetime.date,
    by_day: Mapping[datetime.date, Sequence[Mapping[str, Any]]],
    alerts: Mapping[str, Alert],
) -> Month:
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    return Month(
        f"{first:%B %Y}",
        [
            [
                Day(date, date.month == first.month, date == today, by_day.get(date, []), alerts)
                for date in week
            ]
            for week in weeks
        ],
    )
