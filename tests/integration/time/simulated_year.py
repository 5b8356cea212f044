"""Simulate months for some users in a minute: check every alert's day and count needless runs.

The clock stands still, except that it is moved to each moment at which the daily hour arrives in
one of the users' time zones, and to the times of their meetings. At each of these moments, the real
dispatcher runs every two simulated seconds, as if beat had started it, until it sends no more
hints, and the real tasks do the work, with real sandboxes; nothing else runs. The users have
contracts that end and friends with birthdays (including 29 February, and a constraint whose use of
the day cannot be followed); a few have meetings, of which a constraint warns two hours in advance.
On one day, beat does not tick at all. On another day, a dispatcher and a worker whose clocks are a
day behind are the first to get all work.

The expected events are computed only from the users' dates, by code that knows neither constraints
nor forecasts (year_people.py).
"""

import datetime
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import time_machine

from benchmarks.harness import Measured, Row
from tests.integration.time.year_people import (
    CONSTRAINTS,
    DAY,
    NOTICE,
    START,
    Event,
    Person,
    daily_hour,
)

if TYPE_CHECKING:
    from memory.kernel.models.users import MemoryUser
    from memory.kernel.models.workspaces import Workspace
    from memory.project import Project

THREADS = 4
BEAT = datetime.timedelta(seconds=2)
# The time after which a hint that no worker has followed is sent again.
AGAIN = datetime.timedelta(seconds=11)


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
            tasks.work(name.rpartition(".")[2], *arguments)
        except Exception as error:  # the dispatcher finds the work again, which remains due
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
    """Make these projects the users' next versions, compiled as by the gate; queue their runs."""
    from memory.kernel.canonical import git_blob_id, sha256
    from memory.kernel.daily_runs import next_daily_run
    from memory.project import render
    from memory.versions import checkpoints, runs
    from memory.versions.models.checkpoints import Blob, Checkpoint, Origin
    from workers.sandbox.runner import open_sandbox

    with open_sandbox() as sandbox:
        for user, project in people:
            files = render(project)
            compiled = sandbox.compile(files)
            tree = {path: sha256(text) for path, text in files.items()}
            Blob.objects.bulk_create(
                [
                    Blob(
                        user=user,
                        hash=sha256(text),
                        content=text,
                        git_id=git_blob_id(text.encode()),
                    )
                    for text in set(files.values())
                ],
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
    from memory.kernel.users import create_user

    settle(
        [
            (
                create_user(workspace, person.name, time_zone=person.zone.key, metadata=None),
                version_of(person),
            )
            for person in people
        ]
    )


def simulate(workspace: "Workspace", users: int, days: int, threads: int = THREADS) -> Measured:
    """Simulate `users` users for `days` days; the rows are by constraint."""
    from memory.constraints.models.forecasts import Forecast

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
    from memory.versions.models.runs import Run, RunKind

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
) -> list[Row]:
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
    from memory.alerts.models.alerts import AlertEvent

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
