"""Partition a log table of ten million entries by user while a client keeps writing to it.

    make bench NAME=partition ARGS='--rows 10000000 --partitions 16'

The log is filled in the order in which it would grow, all users in turn. It is then partitioned as
an operator would do it (`manage.py partition_log`), and converted back, while a writer appends on a
connection that it keeps open: the writer's longest wait is the cost of a conversion. Between the
two conversions, while both tables exist, the most frequent reads and writes of the log are timed on
each of them in turn; appends are rolled back. A sample of users have logs that were written by
`log.append`, which are verified; the other users' entries have random hashes.
"""

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg

from benchmarks.harness import Row, durable_system, parser, percentiles, report, settings_of
from benchmarks.partition_filling import SAMPLED_ENTRIES, TEXT, as_owner, fill, sample
from uac_site.embedded.system import System

if TYPE_CHECKING:
    from memory.models import MemoryUser


def give_memory(system: System) -> None:
    """Let PostgreSQL use the memory of a dedicated server; its defaults suit very small ones."""
    settings = {"shared_buffers": "2GB", "maintenance_work_mem": "512MB", "max_wal_size": "8GB"}
    with psycopg.connect(system.services.postgres.superuser_url, autocommit=True) as superuser:
        for name, value in settings.items():
            superuser.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    system.stop("postgres")
    system.start("postgres")


@dataclass
class Writer:
    """Appends messages for the sample's users, one after another, and times each append."""

    people: Sequence["MemoryUser"]
    waits: list[tuple[str, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    during: str = ""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep appending, in a thread, during this context."""
        stop = threading.Event()

        def write() -> None:
            from django.db import connections

            chance = random.Random(1)
            while not stop.wait(0.005):
                during, started = self.during, time.perf_counter()
                try:
                    append(chance.choice(self.people))
                except Exception as error:
                    self.failures.append(repr(error))
                self.waits.append((during, time.perf_counter() - started))
            connections.close_all()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def row(self, during: str) -> Row:
        """Return the row for the appends made during one step."""
        times = [seconds for name, seconds in self.waits if name == during]
        return {
            "while": during or "nothing else",
            "appends": len(times),
            **percentiles(times),
            "longest_ms": round(1000 * max(times)),
        }


def append(user: "MemoryUser") -> None:
    """Append a message to the user's log."""
    from memory import log
    from memory.models.log import EntryKind

    draft = log.Draft(kind=EntryKind.MESSAGE, content=TEXT[:200], role="user", session_id="s")
    log.append(user, [draft], source="benchmark")


def statements(people: Sequence["MemoryUser"]) -> dict[str, Callable[[], object]]:
    """Return the log's most frequent reads and writes; each call picks users or ids at random."""
    from django.db import transaction

    from memory.models import Lane, LogEntry, MemoryUser
    from memory.models.users import LaneName
    from memory.operations.verification import problems
    from memory.recall.search import index
    from memory.staff import timeline
    from memory.work import lanes

    chance = random.Random(7)
    filled = list(MemoryUser.objects.filter(user_id__startswith="filled-").order_by("pk"))
    # The ids of entries of all ages, for lookups by id.
    ids = list(LogEntry.objects.order_by("id").values_list("pk", flat=True)[:2000])

    def user() -> MemoryUser:
        return chance.choice(filled)

    def page() -> object:
        one = user()
        after = chance.randrange(one.last_seq)
        return list(LogEntry.objects.filter(user=one, seq__gt=after).order_by("seq")[:100])

    def tail() -> object:
        one = user()
        return index._live(one, (max(1, one.last_seq - 200), one.last_seq), None)

    def pending() -> object:
        lane = Lane.objects.get(user=user(), name=LaneName.STRUCTURE)
        return lanes.pending(lane, 100)

    def verify() -> object:
        found = list(problems(chance.choice(people)))
        assert not found, found
        return found

    def append_and_back() -> None:
        with transaction.atomic():
            append(chance.choice(people))
            transaction.set_rollback(True)

    def newest() -> object:
        return list(LogEntry.objects.order_by("-recorded_at", "-seq")[:50])

    return {
        "append one message, without its commit": append_and_back,
        "page of 100 of a user's log": page,
        "what waits for a checkpoint": pending,
        "search: the 200 newest, not indexed yet": tail,
        "timeline: a page": lambda: timeline.page(user(), {"entries": LogEntry.objects.all()}),
        "by id alone": lambda: LogEntry.objects.get(pk=chance.choice(ids)),
        "staff: the newest 50 of all": newest,
        f"verify one user ({SAMPLED_ENTRIES} entries)": verify,
    }


def verified(people: Sequence["MemoryUser"]) -> list[str]:
    """Return the problems with the logs of the sample, to which the writer appended throughout."""
    from memory.log import broken_links

    found: list[str] = []
    for user in people:
        user.refresh_from_db()
        found += broken_links(user)
    return found


def measured(
    people: Sequence["MemoryUser"], url: str, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Time each statement on the plain table and on the partitions, in turn.

    Returns table → statement → milliseconds.
    """
    from django.db import connections

    # Only the owner may read the spare table. The search path of each connection determines which
    # of the two tables it finds first.
    address = urlsplit(url)
    paths = {"plain": "log_plain,public", "partitions": "public"}
    tables = {}
    for table, path in paths.items():
        tables[table] = own = connections["default"].copy()
        own.settings_dict = {
            **own.settings_dict,
            "USER": address.username,
            "PASSWORD": address.password,
            "OPTIONS": {**own.settings_dict["OPTIONS"], "options": f"-c search_path={path}"},
        }
    ways = statements(people)
    times: dict[str, dict[str, list[float]]] = {
        table: {name: [] for name in ways} for table in tables
    }
    before = connections["default"]
    try:
        for number in range(-rounds // 10, rounds):
            for name, go in ways.items():
                for table, own in tables.items():
                    connections["default"] = own
                    started = time.perf_counter()
                    go()
                    if number >= 0:
                        times[table][name].append(1000 * (time.perf_counter() - started))
    finally:
        connections["default"] = before
        for own in tables.values():
            own.close()
    return times


def sizes(database: psycopg.Connection[Any]) -> dict[str, int]:
    """Return the sizes in bytes of the live log's rows and indexes."""
    found = database.execute(
        "SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class"
        " WHERE oid = 'public.memory_logentry'::regclass OR oid IN ("
        " SELECT inhrelid FROM pg_inherits WHERE inhparent = 'public.memory_logentry'::regclass)"
    ).fetchone()
    assert found is not None
    return {"rows": int(found[0]), "indexes": int(found[1])}


@dataclass
class Rehearsal:
    """The steps of both conversions, with the time that each step took and the sizes of the log."""

    system: System
    people: Sequence["MemoryUser"]
    rounds: int
    alone_seconds: float
    writer: Writer
    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    locked: list[str] = field(default_factory=list)

    def step(self, name: str, *arguments: str) -> None:
        """Run a step of `partition_log` as an operator would, and record how long it took."""
        owned = {"DATABASE_URL": self.system.services.postgres.owner_url}
        self.writer.during = name
        started = time.perf_counter()
        told = self.system.manage("partition_log", *arguments, environment=owned).rstrip()
        self.seconds[name] = time.perf_counter() - started
        self.writer.during = ""
        if arguments == ("swap",):
            self.locked.append(told)
        print(f"{name}: {told}, {self.seconds[name]:.1f} s", flush=True)

    def weigh(self, table: str) -> None:
        """Record the sizes of the live log under this name."""
        with psycopg.connect(self.system.services.postgres.owner_url) as owner:
            self.sizes[table] = sizes(owner)

    def run(self, partitions: int) -> None:
        """Partition the log, time statements on both tables, and convert the log back."""
        self.weigh("plain")
        with self.writer.writing():
            time.sleep(self.alone_seconds)
            self.step("prepare", "prepare", "--partitions", str(partitions))
            self.step("copy", "copy")
            self.step("check", "check")
            self.step("copy the rest", "copy")
            self.step("swap", "swap")
        self.weigh("partitions")
        self.step("copy once more", "copy")  # nobody writes now, so both tables get the same rows
        self.times = measured(self.people, self.system.services.postgres.owner_url, self.rounds)
        with self.writer.writing():
            self.step("copy back", "copy")
            self.step("swap back", "swap")
        self.step("finish", "finish")

    def rows(self) -> list[Row]:
        """Return a row for each statement: its median on each table, and the ratio of both."""
        made = []
        for name, plain in self.times["plain"].items():
            before = statistics.median(plain)
            after = statistics.median(self.times["partitions"][name])
            made.append(
                {
                    "statement": name,
                    "plain ms": round(before, 2),
                    "partitions ms": round(after, 2),
                    "partitions / plain": round(after / before, 2),
                }
            )
        return made


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(
        __doc__,
        rows=(10_000_000, 2_000),
        users=(20_000, 20),
        partitions=(16, 4),
        rounds=(300, 3),
        alone_seconds=(20.0, 1.0),  # how long the writer writes alone, before the first step
        sample=(40, 4),  # number of users whose logs can be verified
    ).parse_args()
    with durable_system(
        web=False,
        sandbox_workers=0,
        default_workers=0,
        beats=0,
        environment={"UAC_SANDBOX_RUNNER": "process"},
    ) as system:
        give_memory(system)
        settings_of(system)
        people = sample(asked.sample)
        started = time.perf_counter()
        entries = as_owner(system.services.postgres.owner_url, fill, asked.rows, asked.users)
        print(f"{entries} entries in {time.perf_counter() - started:.0f} s", flush=True)
        writer = Writer(people)
        rehearsal = Rehearsal(system, people, asked.rounds, asked.alone_seconds, writer)
        rehearsal.run(asked.partitions)
        broken = verified(people)
    report(
        "appends meanwhile",
        settings={},
        rows=[writer.row(step) for step in dict(writer.waits)],
        figures={},
        path=None,
    )
    report(
        "partition",
        settings={**vars(asked), "json": None},
        rows=rehearsal.rows(),
        figures={
            "entries": entries,
            "appended_beside_it": len(writer.waits),
            "failed_appends": len(writer.failures),
            "problems_of_the_sample": len(broken),
            "locked": rehearsal.locked,
            "load": os.getloadavg(),
            **{
                f"{table}_{what}_mib": round(number / 2**20)
                for table, of in rehearsal.sizes.items()
                for what, number in of.items()
            },
            **{f"{name}_seconds": round(took, 1) for name, took in rehearsal.seconds.items()},
        },
        path=asked.json,
        problems=[*broken, *writer.failures],
    )


if __name__ == "__main__":
    main()
