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
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg

from benchmarks.harness import p95, parser, report, settings_of
from uac_site.embedded.system import System, running_system

if TYPE_CHECKING:
    from memory.models import MemoryUser

SAMPLED_ENTRIES = 500
ROUND = 50  # how many of a user's entries are written in a row, before the next user's

PEOPLE = """
INSERT INTO memory_memoryuser (public_id, workspace_id, user_id, time_zone, metadata, created_at,
    last_seq, last_hash, log_bytes, alerts_version)
SELECT gen_random_uuid(), (SELECT min(id) FROM memory_workspace), 'filled-' || n, 'UTC', '{}',
    now(), 0, decode(repeat('00', 32), 'hex'), 0, 0
FROM generate_series(1, %(users)s) n
"""
# One user in a hundred has 12 times the average number of entries, one in ten has 2.5 times.
LENGTHS = """
CREATE TEMPORARY TABLE filling AS
SELECT id AS user_id, place, greatest(1, round(%(rows)s / %(users)s::numeric / 0.975
    * CASE WHEN place %% 100 = 0 THEN 12 WHEN place %% 10 = 0 THEN 2.5 ELSE 0.7 END))::int AS length
FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser
    WHERE user_id LIKE 'filled-%%') AS people
WHERE place %% %(jobs)s = %(job)s
"""
ENTRIES = """
INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at, recorded_at, derived_from,
    content, data, session_id, role, source, salt, payload_hash, hash)
SELECT gen_random_uuid(), user_id, seq, kind, at, at,
    CASE WHEN kind = 'fact' THEN ARRAY[seq - 1] ELSE '{}'::bigint[] END,
    CASE WHEN kind <> 'record' THEN substr(%(text)s, 1 + noise %% 300, 60 + noise / 300 %% 340) END,
    CASE WHEN kind = 'record' THEN json_build_object('domain', 'travel', 'type', 'Trip', 'key',
        'trip-' || seq, 'data', json_build_object('name', 'City ' || seq, 'cost', noise)) END,
    'session-' || seq / 30, CASE WHEN kind = 'message' THEN 'user' END, 'key:benchmark',
    decode(md5(user_id || '/' || seq), 'hex'), sha256(int8send(seq)),
    sha256(int8send(user_id + seq))
FROM filling
CROSS JOIN LATERAL generate_series(%(after)s + 1, least(length, %(after)s + %(round)s)) AS seq
CROSS JOIN LATERAL (SELECT abs(hashint8(user_id * 1000003 + seq)) AS noise,
    now() - interval '365 days' + (seq * interval '365 days' + place * interval '1 second')
        / (length + 1) AS at,
    CASE seq %% 20 WHEN 3 THEN 'record' WHEN 11 THEN 'record' WHEN 17 THEN 'record'
        ELSE CASE WHEN seq %% 4 = 2 THEN 'fact' ELSE 'message' END END AS kind) AS made
WHERE length > %(after)s
ORDER BY seq, user_id
"""
ENDS = """
UPDATE memory_memoryuser SET last_seq = length
FROM filling WHERE filling.user_id = memory_memoryuser.id
"""
LANES = """
INSERT INTO memory_lane (user_id, name, cursor_seq, waiting, run_after, lease_owner, token,
    attempts, last_error)
SELECT user_id, name, greatest(0, length - 60), 0, now(), '', 0, 0, ''
FROM filling CROSS JOIN (VALUES ('records'), ('structure')) AS names (name)
"""
TEXT = (
    "We booked the hotel in Rome from the 3rd to the 7th of May, 840 euros for both of us, and the"
    " train from Termini on the last day. My sister comes with us, she is allergic to penicillin"
    " and does not eat nuts. In the autumn I would rather stay at home and work on the garden. "
) * 3


def fill(rows: int, users: int, jobs: int = 4) -> int:
    """Fill the log with about `rows` entries for `users` users; return how many there are.

    The connection must be that of the table's owner.
    """
    from django.db import connection

    values: dict[str, int | str] = {"rows": rows, "users": users, "round": ROUND, "text": TEXT}

    def part(job: int) -> int:
        try:
            with connection.cursor() as cursor:
                cursor.execute(LENGTHS, {**values, "jobs": jobs, "job": job})
                for after in range(0, int(rows / users / 0.975 * 12) + 1, ROUND):
                    cursor.execute(ENTRIES, {**values, "after": after})
                cursor.execute(ENDS)
                cursor.execute(LANES)
                cursor.execute("SELECT sum(length) FROM filling")
                return int(cursor.fetchone()[0])
        finally:
            connection.close()

    with connection.cursor() as cursor:
        cursor.execute(PEOPLE, values)
    with without_indexes(), ThreadPoolExecutor(jobs) as executor:
        number = sum(executor.map(part, range(jobs)))
    with connection.cursor() as cursor:
        for table in ("memory_logentry", "memory_memoryuser", "memory_lane"):
            cursor.execute(f"VACUUM (ANALYZE) {table}")
    return number


@contextmanager
def without_indexes() -> Iterator[None]:
    """Drop the indexes that filling does not need, to make it faster; recreate them afterwards."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_get_indexdef(oid) FROM pg_class JOIN pg_index ON indexrelid = oid"
            " WHERE indrelid = 'memory_logentry'::regclass AND NOT indisunique"
        )
        indexes = cursor.fetchall()
        cursor.execute("ALTER TABLE memory_logentry DROP CONSTRAINT memory_logentry_pkey")
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE memory_logentry ADD PRIMARY KEY (id)")
        for _, definition in indexes:
            cursor.execute(definition)


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

    def row(self, during: str) -> dict[str, Any]:
        """Return the row for the appends made during one step."""
        times = [seconds for name, seconds in self.waits if name == during]
        return {
            "while": during or "nothing else",
            "appends": len(times),
            "p50_ms": round(1000 * statistics.median(times), 1),
            "p95_ms": round(1000 * p95(times), 1),
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

    return [found for user in people for found in broken_links(fresh(user))]


def fresh(user: "MemoryUser") -> "MemoryUser":
    """Reload a user from the database and return it."""
    user.refresh_from_db()
    return user


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


def sample(number: int) -> list["MemoryUser"]:
    """Create `number` users whose logs are written by `log.append`, so that they can be verified.

    All of their entries are settled.
    """
    from memory import log
    from memory.models import EntryOutcome, Lane, Workspace
    from memory.models.log import EntryKind
    from memory.users import create_user

    workspace = Workspace.objects.create(name="partition")
    made = []
    for place in range(number):
        user = create_user(workspace, f"sample-{place}", time_zone="UTC", metadata=None)
        drafts = [log.Draft(kind=EntryKind.MESSAGE, content=TEXT[:200])] * SAMPLED_ENTRIES
        entries = log.append(user, drafts, source="benchmark")
        EntryOutcome.objects.bulk_create(
            EntryOutcome(user=user, seq=entry.seq, outcome="covered") for entry in entries
        )
        Lane.objects.filter(user=user).update(cursor_seq=len(entries))
        made.append(user)
    return made


def as_owner(url: str, what: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function on Django's connection as the role that owns the tables."""
    from django.db import connection

    address, settings = urlsplit(url), connection.settings_dict
    before = {name: settings[name] for name in ("USER", "PASSWORD")}
    connection.close()
    settings.update(USER=address.username, PASSWORD=address.password)
    try:
        return what(*arguments)
    finally:
        connection.close()
        settings.update(before)


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

    def rows(self) -> list[dict[str, Any]]:
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
    with (
        tempfile.TemporaryDirectory(prefix="uac-") as folder,
        running_system(
            Path(folder) / "data",
            web=False,
            sandbox_workers=0,
            default_workers=0,
            beats=0,
            environment={"UAC_SANDBOX_RUNNER": "process"},
        ) as system,
    ):
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
