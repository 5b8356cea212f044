"""Simulate a year for a thousand users in minutes: check every alert's day and count needless runs.

    make bench NAME=year ARGS='--users 100'

With `--processes`, the sandboxes are processes instead of containers, and the simulation takes less
time.

The clock stands still, except that it is moved to each moment at which the daily hour arrives in
one of the users' time zones, and to the times of their meetings. At each of these moments, the real
dispatcher runs every two simulated seconds, as if beat had started it, until it sends no more
hints, and the real tasks do the work, with real sandboxes; nothing else runs. The users have
contracts that end and friends with birthdays (including 29 February, and a constraint whose use of
the day cannot be followed); a few have meetings, of which a constraint warns two hours in advance.
On one day, beat does not tick at all. On another day, a dispatcher and a worker whose clocks are a
day behind are the first to get all work.

The expected events are computed only from the users' dates, by code that knows neither constraints
nor forecasts.
"""

import datetime
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock
from zoneinfo import ZoneInfo

import time_machine

from benchmarks.harness import embedded_server, migrate, parser, report

if TYPE_CHECKING:
    from memory.models import MemoryUser, Workspace
    from memory.project import Project

THREADS = 4
START = datetime.datetime(
    2027, 9, 1, tzinfo=datetime.UTC
)  # the year from this day includes a 29 February
JOINING_DAYS = 30
DAILY_HOUR = 6
DAY = datetime.timedelta(days=1)
BEAT = datetime.timedelta(seconds=2)
NOTICE = datetime.timedelta(hours=2)
# The time after which a hint that no worker has followed is sent again.
AGAIN = datetime.timedelta(seconds=11)
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


class Year:
    """The server during the simulated time, with a clock that the simulation moves.

    Create it with `standing_still`.
    """

    def __init__(self, clock: time_machine.Traveller, threads: int) -> None:
        self.clock = clock
        self.beats = 0
        self.failures: list[str] = []
        self._messages: list[tuple[str, Sequence[Any]]] = []
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads)

    def send_task(self, name: str, args: Sequence[Any], **_: object) -> None:
        """Accept a hint, as the message broker would."""
        with self._lock:
            self._messages.append((name, args))

    def beat(self) -> bool:
        """Run the dispatcher once and do the work that it hints at; return whether any was due."""
        from workers import tasks

        tasks.dispatch()
        self.beats += 1
        return self.work()

    def work(self) -> bool:
        """Do the work that hints were sent for; return whether there was any."""
        messages, self._messages = self._messages, []
        list(self._executor.map(self._do, messages))
        return bool(messages)

    def _do(self, message: tuple[str, Sequence[Any]]) -> None:
        from workers import tasks

        name, arguments = message
        try:
            getattr(tasks, name.rpartition(".")[2])(*arguments)
        except (
            Exception
        ) as error:  # the work remains due in the database, and the dispatcher finds it again
            self.failures.append(f"{name}: {error!r}")

    def tick(self, at: datetime.datetime) -> None:
        """Move the clock, and let beat tick until no work is left."""
        self.clock.move_to(at)
        while self.beat():
            self.clock.shift(BEAT)

    def tick_behind(self, at: datetime.datetime) -> None:
        """Let a dispatcher and a worker run with clocks a day behind, then do as `tick` does."""
        self.clock.move_to(at - DAY)
        self.beat()
        self.clock.move_to(at)
        from workers import tasks

        tasks.dispatch()
        self.clock.move_to(at - DAY)
        self.work()
        self.tick(at + AGAIN)

    def close(self) -> None:
        """End the worker threads and close their database connections."""
        from django.db import connections

        barrier = threading.Barrier(self._executor._max_workers)

        def part(_: int) -> None:
            connections.close_all()
            barrier.wait(10)

        list(self._executor.map(part, range(self._executor._max_workers)))
        self._executor.shutdown()


@contextmanager
def standing_still(at: datetime.datetime, threads: int = THREADS) -> Iterator[Year]:
    """Stop the clock at a moment; hints sent in this context go to the Year object.

    The server's check of this clock against the database's, which keeps running, is switched off.
    """
    from django.test import override_settings

    from uac_site.celery import app

    with (
        override_settings(UAC_CLOCK_SECONDS=0.0),
        time_machine.travel(at, tick=False) as clock,
    ):
        year = Year(clock, threads)
        with mock.patch.object(app, "send_task", year.send_task):
            try:
                yield year
            finally:
                year.close()


def version_of(person: Person) -> "Project":
    """Return a person's project, with all records and constraints."""
    from memory.project import Project, RecordEntry, WriteConstraint, apply, compile_record

    project = Project.empty()
    for seq, (type_, key, data) in enumerate(person.records(), 1):
        entry = RecordEntry(seq=seq, domain="life", type=type_, key=key, data=data)
        for edit in compile_record(project, entry):
            apply(project, edit)
    for name in person.constraints():
        apply(project, WriteConstraint(name, CONSTRAINTS[name], "", sources=(1,)))
    return project


def settle(people: Sequence[tuple["MemoryUser", "Project"]]) -> None:
    """Make these projects the users' next versions, compiled as by the gate.

    Also queue runs of their constraints.
    """
    from memory import checkpoints
    from memory.canonical import sha256
    from memory.models import Blob, Checkpoint
    from memory.models.checkpoints import Origin
    from memory.project import render
    from memory.users import next_daily_run
    from memory.work import runs
    from workers.sandbox.runner import open_sandbox

    with open_sandbox() as sandbox:
        for user, project in people:
            files = render(project)
            compiled = sandbox.compile(files)
            tree = {path: sha256(text) for path, text in files.items()}
            Blob.objects.bulk_create(
                [Blob(user=user, hash=sha256(text), content=text) for text in set(files.values())],
                ignore_conflicts=True,
            )
            version = Checkpoint.objects.create(
                user=user,
                version=user.head.version + 1 if user.head else 1,
                parent=user.head,
                tree=tree,
                outline=project.outline.to_json(),
                seen_seq=0,
                origin=Origin.RECORDS,
                edits=[],
                verdict={"accepted": True},
            )
            checkpoints.store_bytecode(version, compiled, sandbox.image_digest)
            user.head = version
            user.constraints_due_at = next_daily_run(user, datetime.datetime.now(datetime.UTC))
            user.save(update_fields=["head", "constraints_due_at"])
            runs.queue_constraints(user, version)


def eventful(people: Sequence[Person], after: datetime.datetime) -> datetime.date:
    """Return the first day after a moment on which some person's findings change."""
    until = after + 365 * DAY
    return min(at for one in people for at in one.changes(until) if at > after).date()


def ticks_of(people: Sequence[Person], days: int, late: datetime.date) -> list[datetime.datetime]:
    """Return the moments at which beat ticks.

    These are the moments at which people join, one second after the daily hour in each time zone,
    and one second after each change caused by a meeting. There are none on the day `late`.
    """
    struck = {
        daily_hour(START.date() + number * DAY, zone)
        for zone in {person.zone for person in people}
        for number in range(days)
    }
    of_meetings = {at for one in people for start in one.meetings for at in (start - NOTICE, start)}
    second = datetime.timedelta(seconds=1)
    moments = {at + second for at in struck | of_meetings} | {person.joins for person in people}
    return sorted(at for at in moments if at <= START + days * DAY and at.date() != late)


def join(workspace: "Workspace", people: Sequence[Person]) -> None:
    """Create users for these people, with their records and constraints."""
    from memory.users import create_user

    settle(
        [
            (
                create_user(workspace, person.name, time_zone=person.zone.key, metadata=None),
                version_of(person),
            )
            for person in people
        ]
    )


def simulate(
    workspace: "Workspace", users: int, days: int, threads: int = THREADS
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Simulate `users` users for `days` days.

    Returns a row for each constraint, the figures and the problems.
    """
    from memory.models import Forecast

    started = time.monotonic()
    people = [Person.made_up(number, users) for number in range(users)]
    behind, late = (eventful(people, START + part * DAY) for part in (days // 2, days * 2 // 3))
    ticks = ticks_of(people, days, late)
    with standing_still(START, threads) as year:
        happened = live(year, workspace, people, ticks, behind)
    ran = count_runs(workspace)
    wanted, runs_too_many = compare_with_dates(people, ticks, ran)
    missing, unwanted = Counter(wanted) - Counter(happened), Counter(happened) - Counter(wanted)
    steps = Counter(event[:3] + event[4:] for event in happened)
    total = sum(ran.values())
    figures = {
        "users": users,
        "days": days,
        "ticks": len(ticks),
        "beats": year.beats,
        "events": len(happened),
        "wrong_days": max(missing.total(), unwanted.total()),
        "twice": sum(number - 1 for number in steps.values()),
        "runs": total,
        "runs_too_many": runs_too_many,
        "runs_per_user_and_year": round(total / users * 365 / days, 2),
        "daily_runs_would_be": users * days,
        "without_forecast": Forecast.objects.filter(computed_at=None).count(),
        "failures": len(year.failures),
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    problems = [f"missing: {event}" for event in missing] + [f"not wanted: {e}" for e in unwanted]
    rows = rows_by_constraint(people, happened, missing, unwanted)
    return rows, figures, [*problems, *year.failures]


def live(
    year: Year,
    workspace: "Workspace",
    people: Sequence[Person],
    ticks: Sequence[datetime.datetime],
    behind: datetime.date,
) -> list[Event]:
    """Move the clock from tick to tick; return the events that happen.

    On the day `behind`, some processes have clocks that are a day behind.
    """
    happened: list[Event] = []
    last_seq = 0
    for tick in ticks:
        if joining := [person for person in people if person.joins == tick]:
            year.clock.move_to(tick)
            join(workspace, joining)
            year.work()
        (year.tick_behind if tick.date() == behind else year.tick)(tick)
        for seq, event in events_since(workspace, last_seq, tick):
            happened.append(event)
            last_seq = seq
    return happened


def count_runs(workspace: "Workspace") -> Counter[str]:
    """Return how often each user's constraints ran, keyed by `user_id`."""
    from memory.models import Run
    from memory.models.runs import RunKind

    ran = Run.objects.filter(user__workspace=workspace, kind=RunKind.CONSTRAINTS)
    return Counter(ran.values_list("user__user_id", flat=True))


def compare_with_dates(
    people: Sequence[Person], ticks: Sequence[datetime.datetime], ran: Counter[str]
) -> tuple[list[Event], int]:
    """Return the events that the people's dates require, and the number of unnecessary runs."""
    wanted: list[Event] = []
    runs_too_many = 0
    for person in people:
        events, runs = person.expected(ticks)
        wanted += events
        # A forecast is renewed, which takes a run, when half of its horizon has passed.
        renewals = int((ticks[-1] - person.joins) / (182.5 * DAY))
        runs_too_many += max(0, ran[person.name] - runs - renewals)
    return wanted, runs_too_many


def rows_by_constraint(
    people: Sequence[Person],
    happened: Sequence[Event],
    missing: Counter[Event],
    unwanted: Counter[Event],
) -> list[dict[str, Any]]:
    """Return a row for each constraint: the number of its users, and of its events by kind."""
    return [
        {
            "constraint": name,
            "users": sum(name in person.constraints() for person in people),
            **{
                kind: sum(_is_of(event, name, people, kind) for event in happened)
                for kind in ("opened", "changed", "resolved")
            },
            "missing": sum(_is_of(event, name, people) for event in missing.elements()),
            "not wanted": sum(_is_of(event, name, people) for event in unwanted.elements()),
        }
        for name in CONSTRAINTS
    ]


def events_since(
    workspace: "Workspace", seq: int, tick: datetime.datetime
) -> list[tuple[int, Event]]:
    """Return the events after `seq` in the alerts feed, as read at a tick, except escalations."""
    from memory.models import AlertEvent

    events = AlertEvent.objects.filter(workspace=workspace, seq__gt=seq).order_by("seq")
    return [
        (
            event.seq,
            Event(
                int(event.alert.user.user_id.rpartition("-")[2]),
                event.alert.evidence[0]["key"] if event.alert.evidence else event.alert.message,
                event.kind,
                event.alert.severity,
                tick,
            ),
        )
        for event in events.select_related("alert__user")
        if event.alert is not None and event.kind != "escalated"
    ]


def _is_of(event: Event, constraint: str, people: Sequence[Person], kind: str = "") -> bool:
    name = event.finding.partition("-")[0]
    if name == "friend" and people[event.person].by_text:
        name = "friend_by_text"
    return name == constraint and kind in ("", event.kind)


def main() -> None:
    """Run the simulation and report the results."""
    line = parser(__doc__, users=(1000, 4), days=(365, 60))
    line.add_argument("--processes", action="store_true", help="run sandboxes as processes")
    asked = line.parse_args()
    logging.disable(logging.INFO)
    # Enough leases, held long enough, that the sandboxes of all people who join on the same day are
    # still there when their forecasts are made.
    os.environ.update(UAC_SANDBOX_LEASES="40", UAC_SANDBOX_LEASE_SECONDS="20")
    with embedded_server("process" if asked.processes else "docker") as services:
        from memory.models import Workspace
        from workers.sandbox import runner
        from workers.sandbox.build import ensure_image

        migrate(services)
        if not asked.processes:
            ensure_image()
        try:
            workspace = Workspace.objects.create(name="year")
            rows, figures, problems = simulate(workspace, asked.users, asked.days)
        finally:
            runner.close_pool()
    settings = {
        "threads": THREADS,
        "processes": asked.processes,
        "start": START.isoformat(),
        "zones": ZONES,
    }
    report(
        "year", settings=settings, rows=rows, figures=figures, path=asked.json, problems=problems
    )


if __name__ == "__main__":
    main()
