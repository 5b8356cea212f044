"""Measure the cost of appending to a log.

Three comparisons are made, and the two sides of each take turns:
- one entry over HTTP, and a bare Django view on the same server that does a single INSERT;
- a hundred entries by `entry_log.append`, without HTTP, and COPY of a hundred prepared rows per
  commit into the same table, with its triggers;
- one entry over HTTP to a log with a million entries, and one to a log with ten.

The database waits for the disk at every commit, as in production. No worker runs, so the work that
follows an append is not measured.
"""

import datetime
import http.client
import json
import statistics
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.harness import (
    Row,
    durable_system,
    expect,
    new_client,
    p95,
    parser,
    percentiles,
    report,
    settings_of,
)
from deploy.embedded.system import System

if TYPE_CHECKING:
    from memory.kernel.models.users import MemoryUser
    from memory.log.entry_log import Draft

BATCH = 100
SHORT = 10
GOALS = "append_vs_bare <= 3, batch_vs_copy >= 0.4, append_growth <= 1.2"

MESSAGE = {
    "kind": "message",
    "role": "user",
    "session_id": "trip-to-rome",
    "content": "We booked the hotel in Rome from the 3rd to the 7th of May: 840 euros for both.",
}
RECORD = {
    "kind": "record",
    "domain": "travel",
    "type": "Trip",
    "key": "rome",
    "data": {"name": "Rome", "cost": 840, "on": "2026-05-03", "nights": 4},
}
# The columns that COPY fills, in order; all other columns stay empty.
COLUMNS = (
    *("id", "user_id", "seq", "kind", "occurred_at", "recorded_at", "derived_from"),
    *("content", "session_id", "role", "source", "salt", "payload_hash", "hash"),
)

Timed = Callable[[], None]
Times = Mapping[str, Sequence[float]]  # the seconds that each way of appending took, in every round


class Caller:
    """A product's backend, which keeps one connection to the server open."""

    def __init__(self, system: System, key: str) -> None:
        self._connection = http.client.HTTPConnection(urllib.parse.urlsplit(system.base_url).netloc)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def post(self, path: str, body: Mapping[str, Any], **headers: str) -> None:
        """Post the body and read the answer, whose status must be 202."""
        self._connection.request("POST", path, json.dumps(body), self._headers | headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 202, answer

    def close(self) -> None:
        """Close the connection, since the server would close it while this client is idle.

        The next request opens a new one.
        """
        self._connection.close()


def in_turns(rounds: int, **ways: Timed) -> dict[str, list[float]]:
    """Time each way once per round, after some warm-up rounds; return each way's seconds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-rounds // 10, rounds):
        for name, go in ways.items():
            started = time.perf_counter()
            go()
            if number >= 0:
                times[name].append(time.perf_counter() - started)
    return times


def row(what: str, times: Sequence[float], entries: int = 1) -> Row:
    """Return the table's row for one way of appending."""
    return {
        "what": what,
        **percentiles(times, digits=2),
        "entries_per_second": round(entries / statistics.median(times)),
    }


def drafted() -> "Draft":
    """Return MESSAGE in the form that `entry_log.append` takes."""
    from memory.log.entry_log import Draft
    from memory.log.models.entries import EntryKind

    return Draft(
        kind=EntryKind.MESSAGE,
        role=MESSAGE["role"],
        session_id=MESSAGE["session_id"],
        content=MESSAGE["content"],
    )


def chained(user: "MemoryUser", number: int) -> Iterator[tuple[Any, ...]]:
    """Yield `number` rows that continue the user's log, as `entry_log.append` would write them."""
    from memory.log import entry_log

    draft = drafted()
    now = datetime.datetime.now(datetime.UTC)
    for _ in range(number):
        user.last_seq += 1
        entry, _ = entry_log._entry(
            user, user.last_seq, bytes(user.last_hash), draft, source="benchmark", now=now
        )
        user.last_hash = entry.hash
        yield tuple(getattr(entry, column) for column in COLUMNS)


def copy(database: psycopg.Connection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    """COPY the rows into the log's table and commit."""
    with database.cursor() as cursor:
        statement = f"COPY memory_logentry ({', '.join(COLUMNS)}) FROM STDIN"
        with cursor.copy(statement) as target:
            for one in rows:
                target.write_row(one)
    database.commit()


def filled(user: "MemoryUser", database: psycopg.Connection[Any], number: int) -> None:
    """Give the user `number` covered entries, and update the ends of the user's log and lanes."""
    from memory.kernel.models.users import Lane

    rows = chained(user, number)
    while chunk := [one for _, one in zip(range(10_000), rows, strict=False)]:
        copy(database, chunk)
    user.save(update_fields=["last_seq", "last_hash"])
    with database.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memory_entryoutcome (user_id, seq, outcome, reason, set_aside, decided_at)"
            " SELECT user_id, seq, 'covered', '', '{}', now() FROM memory_logentry"
            " WHERE user_id = %s",
            [user.pk],
        )
    database.commit()
    Lane.objects.filter(user=user).update(cursor_seq=user.last_seq)


def measure(
    system: System, database: psycopg.Connection[Any], rounds: int, entries: int
) -> tuple[list[Any], dict[str, Any]]:
    """Run all comparisons; return the rows and the figures. The long log has `entries` entries."""
    from memory.kernel.models.users import MemoryUser

    client = new_client(system, "benchmark")
    users = {}
    for name in ("one", "batch", "http", "copied", "short", "long"):
        expect(201, client.post("users/", {"user_id": name}))
        users[name] = MemoryUser.objects.get(user_id=name)
    caller = Caller(system, client.key)
    one = time_single(caller, rounds)
    many = time_batches(caller, users["batch"], users["copied"], database, max(rounds // 4, 2))
    filled(users["short"], database, SHORT)
    filled(users["long"], database, entries)
    caller.close()
    grown = in_turns(
        rounds, short=post(caller, "short", MESSAGE), long=post(caller, "long", MESSAGE)
    )

    rows = [
        row("bare view: one INSERT, HTTP", one["bare"]),
        row("one message, HTTP", one["message"]),
        row("one typed record, HTTP", one["record"]),
        row("one message with Idempotency-Key, HTTP", one["once"]),
        row(f"COPY of {BATCH} rows", many["copy"], BATCH),
        row(f"log.append of {BATCH}", many["append"], BATCH),
        row(f"{BATCH} messages, HTTP", many["http"], BATCH),
        row(f"one message to a log of {SHORT}, HTTP", grown["short"]),
        row(f"one message to a log of {entries}, HTTP", grown["long"]),
    ]
    return rows, compare(one, many, grown)


def post(caller: Caller, name: str, body: Mapping[str, Any]) -> Timed:
    """Return a function that sends a request to append to a user's log."""
    return lambda: caller.post(f"/v1/users/{name}/entries/", body)


def time_single(caller: Caller, rounds: int) -> Times:
    """Time appending one entry, in three ways, and the bare view's single INSERT."""

    def once() -> None:
        named = {"Idempotency-Key": str(uuid.uuid4())}
        caller.post("/v1/users/one/entries/", MESSAGE, **named)

    return in_turns(
        rounds,
        bare=lambda: caller.post("/bare/", MESSAGE),
        message=post(caller, "one", MESSAGE),
        record=post(caller, "one", RECORD),
        once=once,
    )


def time_batches(
    caller: Caller,
    appended: "MemoryUser",
    copied: "MemoryUser",
    database: psycopg.Connection[Any],
    rounds: int,
) -> Times:
    """Time appending a hundred entries, in two ways, and COPY of as many prepared rows."""
    from memory.log import entry_log

    drafts = [drafted()] * BATCH
    made = chained(copied, BATCH * (rounds + rounds // 10 + 1))
    batches = iter(list(zip(*[made] * BATCH, strict=True)))

    def append() -> None:
        entry_log.append(appended, drafts, source="benchmark")

    return in_turns(
        rounds,
        copy=lambda: copy(database, next(batches)),
        append=append,
        http=post(caller, "http", {"entries": [MESSAGE] * BATCH}),
    )


def compare(one: Times, many: Times, grown: Times) -> dict[str, Any]:
    """Return the figures: single entries, batches and a long log, relative to their baselines."""
    bare, copied, short = (
        statistics.median(times) for times in (one["bare"], many["copy"], grown["short"])
    )
    return {
        "append_vs_bare": round(statistics.median(one["message"]) / bare, 2),
        "append_vs_bare_p95": round(p95(one["message"]) / p95(one["bare"]), 2),
        "append_record_vs_bare": round(statistics.median(one["record"]) / bare, 2),
        "append_once_vs_bare": round(statistics.median(one["once"]) / bare, 2),
        "batch_vs_copy": round(copied / statistics.median(many["append"]), 2),
        "http_batch_vs_copy": round(copied / statistics.median(many["http"]), 2),
        "append_growth": round(statistics.median(grown["long"]) / short, 2),
    }


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, rounds=(400, 10), entries=(1_000_000, 1_000)).parse_args()
    environment = {
        "DJANGO_SETTINGS_MODULE": "benchmarks.bare.settings",
        "UAC_SANDBOX_RUNNER": "process",
    }
    with durable_system(
        sandbox_workers=0, default_workers=0, beats=0, environment=environment
    ) as system:
        settings_of(system)
        from benchmarks.bare.urls import TABLE

        with psycopg.connect(system.services.postgres.owner_url) as owner:
            owner.execute(TABLE)
        with psycopg.connect(system.environment["DATABASE_URL"]) as database:
            rows, figures = measure(system, database, asked.rounds, asked.entries)
    report(
        "ingest",
        settings={
            "rounds": asked.rounds,
            "batch": BATCH,
            "entries": asked.entries,
            "goals": GOALS,
        },
        rows=rows,
        figures=figures,
        path=asked.json,
    )


if __name__ == "__main__":
    main()
