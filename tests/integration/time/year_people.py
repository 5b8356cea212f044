"""The people of the simulated year: their dates, constraints, and the events that are expected.

The expected events are computed only from the dates, by code that knows neither constraints nor
forecasts.
"""

import datetime
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

START = datetime.datetime(
    2027, 9, 1, tzinfo=datetime.UTC
)  # the year from this day includes a 29 February
JOINING_DAYS = 30
DAILY_HOUR = 6
DAY = datetime.timedelta(days=1)
NOTICE = datetime.timedelta(hours=2)
ZONES = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"),
    *("Asia/Kolkata", "America/Santiago", "Pacific/Auckland"),
)

HEAD = """\
import datetime
from collections.abc import Iterator
from uac import Alert, critical, info, warning
from domains.life.state import {collection}


"""
CONSTRAINTS = {
    "contract": HEAD.format(collection="contracts")
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for contract in contracts:
        left = (contract.ends_on - today).days
        if 0 <= left <= 30:
            severity = critical if left <= 3 else warning if left <= 14 else info
            yield severity(f"ends in {left} days", evidence=[contract])
""",
    "friend": HEAD.format(collection="friends")
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for friend in friends:
        born = friend.born_on
        for year in (today.year, today.year + 1):
            is_short = (born.month, born.day) == (2, 29) and year % 4 != 0
            birthday = datetime.date(year, born.month, 28 if is_short else born.day)
            left = (birthday - today).days
            if 0 <= left <= 5:
                severity = warning if left == 0 else info
                yield severity(f"birthday in {left} days", evidence=[friend])
""",
    "friend_by_text": HEAD.format(collection="friends")
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for friend in friends:
        if today.strftime("%m-%d") == friend.born_on.strftime("%m-%d"):
            yield warning("birthday", evidence=[friend])
""",
    "meeting": HEAD.format(collection="meetings")
    + """\
def check(now: datetime.datetime) -> Iterator[Alert]:
    for meeting in meetings:
        left = meeting.starts_at - now
        if datetime.timedelta() < left <= datetime.timedelta(hours=2):
            yield warning("begins soon", evidence=[meeting])
""",
}

# Maps the names of findings to their severities.
Findings = Mapping[str, str]


class Event(NamedTuple):
    """A change of an alert, and the tick at which it happened."""

    person: int
    finding: str
    kind: str
    severity: str
    tick: datetime.datetime


@dataclass(frozen=True)
class Person:
    """A user's dates, and the events that are expected because of them."""

    number: int
    zone: ZoneInfo
    joins: datetime.datetime
    contract: datetime.date | None
    friend: datetime.date | None
    by_text: bool
    meetings: tuple[datetime.datetime, ...]

    @classmethod
    def made_up(cls, number: int, people: int) -> "Person":
        """Make up the person with this number; the same number always gives the same person."""
        chance = random.Random(number)
        zone = ZoneInfo(ZONES[number % min(people // 4, len(ZONES))])
        joins = START + (number * JOINING_DAYS // people) * DAY + datetime.timedelta(hours=12)
        day = joins.date()
        has_friend, has_meetings = chance.random() < 0.4, number % 25 == 3
        contract = None
        if chance.random() < 0.6 or not (has_friend or has_meetings):
            contract = day + chance.randrange(-20, 450) * DAY
        born = datetime.date(1980, 1, 1) + chance.randrange(366) * DAY
        if chance.random() < 0.1:
            born = datetime.date(1980, 2, 29)
        hours = [datetime.time(chance.randrange(12, 20), chance.randrange(60)) for _ in range(2)]
        meetings = tuple(
            datetime.datetime.combine(day + chance.randrange(2, 180) * DAY, hour, zone)
            for hour in hours
        )
        return cls(
            number=number,
            zone=zone,
            joins=joins,
            contract=contract,
            friend=born if has_friend else None,
            by_text=number % 2 == 1,
            meetings=tuple(one.astimezone(datetime.UTC) for one in meetings if has_meetings),
        )

    @property
    def name(self) -> str:
        """The person's `user_id`."""
        return f"person-{self.number}"

    def records(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield the class, key and data of each of the person's records."""
        if self.contract:
            yield "Contract", "contract", {"ends_on": self.contract.isoformat()}
        if self.friend:
            yield "Friend", "friend", {"born_on": self.friend.isoformat()}
        for number, starts_at in enumerate(self.meetings):
            yield "Meeting", f"meeting-{number}", {"starts_at": starts_at.isoformat()}

    def constraints(self) -> Iterator[str]:
        """Yield the names of the person's constraints."""
        if self.contract:
            yield "contract"
        if self.friend:
            yield "friend_by_text" if self.by_text else "friend"
        if self.meetings:
            yield "meeting"

    def findings(self, at: datetime.datetime) -> Findings:
        """Return the findings that the person's constraints must have at that moment."""
        soon = {
            f"meeting-{number}": "warning"
            for number, starts_at in enumerate(self.meetings)
            if starts_at - NOTICE <= at < starts_at
        }
        return {**self._of_day(at.astimezone(self.zone).date()), **soon}

    def _of_day(self, day: datetime.date) -> dict[str, str]:
        found = {}
        if self.contract and 0 <= (left := (self.contract - day).days) <= 30:
            found["contract"] = "critical" if left <= 3 else "warning" if left <= 14 else "info"
        if self.friend and self.by_text:
            if (day.month, day.day) == (self.friend.month, self.friend.day):
                found["friend"] = "warning"
        elif self.friend:
            for left in range(6):
                if _is_birthday(self.friend, day + left * DAY):
                    found["friend"] = "info" if left else "warning"
        return found

    def changes(self, until: datetime.datetime) -> list[datetime.datetime]:
        """Return when the findings change after the person has joined.

        Changes from one day to the next take effect at the daily hour.
        """
        found = [at for start in self.meetings for at in (start - NOTICE, start) if at > self.joins]
        day = self.joins.astimezone(self.zone).date()
        while day <= until.astimezone(self.zone).date():
            day += DAY
            if self._of_day(day) != self._of_day(day - DAY):
                found.append(daily_hour(day, self.zone))
        return sorted(found)

    def expected(self, ticks: Sequence[datetime.datetime]) -> tuple[list[Event], int]:
        """Return the events expected at these ticks, and how many constraint runs they require."""
        events, runs = [], 0
        shown: Findings = {}
        changes = [self.joins, *self.changes(ticks[-1])]
        for tick in ticks:
            due = [at for at in changes if at <= tick]
            if not due:
                continue
            changes = changes[len(due) :]
            runs += 1
            found = self.findings(tick)
            for name in {*shown, *found}:
                before, after = shown.get(name), found.get(name)
                if before != after:
                    kind = "changed" if before and after else "opened" if after else "resolved"
                    events.append(Event(self.number, name, kind, after or before or "", tick))
            shown = found
        return events, runs


def _is_birthday(born: datetime.date, day: datetime.date) -> bool:
    if (born.month, born.day) == (2, 29) and day.year % 4:
        return (day.month, day.day) == (2, 28)
    return (day.month, day.day) == (born.month, born.day)


def daily_hour(day: datetime.date, zone: ZoneInfo) -> datetime.datetime:
    """Return the moment, in UTC, of the daily hour on a day in a time zone."""
    local = datetime.datetime.combine(day, datetime.time(DAILY_HOUR), zone)
    return local.astimezone(datetime.UTC)
