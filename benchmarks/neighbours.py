"""Measure how a hostile tenant A slows down a tenant B: B's requests alone, and alongside A's.

    make bench NAME=neighbours

Two workspaces share a complete server with container sandboxes. B repeatedly runs a query, sends a
typed entry and waits until it is in the project, and reads a manifest. At first, B is alone; then
A, from a process of its own, makes one kind of attack after another on the resources that B needs:
endless queries, ten thousand entries at a time, answers of a megabyte, differences between large
versions, long polls, reads without a pause, requests that never end, downloads that nobody reads,
texts that are slow to process, code that exceeds every limit, and backtests. B's times under each
attack are shown next to its times alone, which are measured again before each attack.

The process that plays A uses part of the machine itself, which affects all of these figures.
"""

import argparse
import functools
import http.client
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg

from benchmarks.harness import (
    Client,
    Row,
    append,
    durable_system,
    expect,
    new_client,
    p95,
    parser,
    report,
    until,
)
from benchmarks.overpaid import OVERPAID
from deploy.embedded.system import System

A, B = "neighbour-a", "neighbour-b"
PERSON = "person-{}"
PEOPLE = 8  # number of people in A's workspace, besides the large person
CROWD = 1000  # number of further people whom A has records for
RECORDS = 10_000  # number of records that A's large person has
LARGE = "large"
CALLERS = 8  # number of A's concurrent callers
SLOW_CONNECTIONS = 300
# An answer that takes longer than this many seconds counts as missing.
UNANSWERED_SECONDS = 60.0
ENDLESS = "sum(1 for _ in iter(int, 1))"
MEGABYTE = "'x' * 1_000_000"
PURCHASE = {"what": "tea", "cents": 100, "bought_on": "2025-03-01"}


def purchase(key: str, cents: int = 100) -> dict[str, Any]:
    """Return a purchase as a typed entry."""
    data = {**PURCHASE, "cents": cents}
    return {"kind": "record", "domain": "money", "type": "Purchase", "key": key, "data": data}


# -- A's attacks: each call makes one attack; several callers repeat it ----------------------------


def endless_queries(client: Client, number: int) -> None:
    """Send an endless query without waiting for its answer."""
    body = {"code": f"{ENDLESS} + {number}"}
    client.post(f"users/{PERSON.format(number % PEOPLE)}/query/?wait=0", body)
    time.sleep(0.2)


def bursts(client: Client, number: int) -> None:
    """Append 10,000 entries in a burst."""
    entries = [purchase(f"burst-{number}-{index}") for index in range(1000)]
    for _ in range(10):
        client.post(f"users/{PERSON.format(number % PEOPLE)}/entries/", {"entries": entries})


def crowds(client: Client, number: int) -> None:
    """Append a record for each of many people, one after another."""
    user = f"crowd-{number % CROWD}"
    if number < CROWD:
        client.post("users/", {"user_id": user})
    client.post(f"users/{user}/entries/", purchase(f"crowd-{number}"))


def megabyte_answers(client: Client, number: int) -> None:
    """Request an answer of one megabyte, and read it."""
    client.post(
        f"users/{PERSON.format(number % PEOPLE)}/query/", {"code": f"{MEGABYTE} + '{number}'"}
    )


def large_differences(client: Client, number: int) -> None:
    """Request the changes between a version with one record and one with ten thousand."""
    status, _ = client.get(f"users/{LARGE}/diff/?since=v1")
    if status == 429:
        time.sleep(1.0)


def long_polls(client: Client, number: int) -> None:
    """Wait for events that never come; there are more callers than waiting slots."""
    _, answer = client.get("events/?after=0&wait=20")
    if not answer.get("waited"):
        time.sleep(1.0)


def quick_reads(client: Client, number: int) -> None:
    """Read manifests as fast as the server answers."""
    client.get(f"users/{PERSON.format(number % PEOPLE)}/manifest/")


def slow_texts(client: Client, number: int) -> None:
    """Search for and append long runs of combining marks, and propose edits that cite them."""
    user = f"users/{PERSON.format(number % PEOPLE)}"
    marks = "a" + "\u0300\u0316" * 50_000
    client.post(f"{user}/search/", {"query": marks[:8000]})
    message = {"kind": "message", "role": "user", "content": marks + "1/" * 15_000}
    _, told = client.post(f"{user}/entries/", message)
    cited = [told["entries"][0]["seq"]]
    texts = [f"On May {day} of 1997 there were {37 * day} apples." for day in range(1, 31)]
    notes = [{"op": "note", "text": text, "sources": cited} for text in texts]
    client.post(f"{user}/checkpoints/?wait=0", {"edits": notes})


def past_limits(client: Client, number: int) -> None:
    """Run code whose memory or result exceeds every limit."""
    code = (
        "[bytes(10**7) for _ in range(10**6)]",
        "[['\\\\\"' * 200_000 + str(one)] for one in range(3)]",
        "'\\\\\",[' * 300_000",
    )[number % 3]
    client.post(
        f"users/{PERSON.format(number % PEOPLE)}/query/?wait=5", {"code": f"{code}  # {number}"}
    )


def backtests(client: Client, number: int) -> None:
    """Start a backtest over the history of a person with many records."""
    status, _ = client.post(
        f"users/{LARGE}/backtests/", {"constraint": "constraints/overpaid.py", "days": 365}
    )
    time.sleep(1.0 if status < 300 else 5.0)


def slow_bodies(base_url: str, key: str) -> None:
    """Send form bodies that never end, without an API key."""
    head = (
        b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
        b"Cookie: csrftoken=" + b"a" * 32 + b"\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nusername="
    )
    keep_open(base_url, head, b"a")


def slow_readers(base_url: str, key: str) -> None:
    """Request everything about a person with many records, and never read the answer."""
    head = f"GET /v1/users/{LARGE}/subject-access/ HTTP/1.1\r\nHost: localhost\r\n"
    keep_open(base_url, f"{head}Authorization: Bearer {key}\r\n\r\n".encode(), b"")


def keep_open(base_url: str, head: bytes, more: bytes) -> None:
    """Keep many slow connections open; replace those that are closed.

    Each sends `head` at first and then `more` every second.
    """
    address = urlsplit(base_url)
    connections: list[socket.socket] = []
    while True:
        for one in list(connections):
            try:
                one.send(more)
            except OSError:
                one.close()
                connections.remove(one)
        while len(connections) < SLOW_CONNECTIONS:
            try:
                one = socket.socket()
                one.settimeout(5)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.connect((address.hostname, address.port or 80))
                one.sendall(head)
                one.setblocking(False)
            except OSError:
                break
            connections.append(one)
        time.sleep(1.0)


ATTACKS: Mapping[str, Callable[[Client, int], None]] = {
    attack.__name__: attack
    for attack in (
        *(endless_queries, bursts, crowds, megabyte_answers, large_differences, long_polls),
        *(quick_reads, slow_texts, past_limits, backtests),
    )
}
# Attacks that consist of many connections kept open.
CONNECTIONS: Mapping[str, Callable[[str, str], None]] = {
    "slow_bodies": slow_bodies,
    "slow_readers": slow_readers,
}
# The number of A's callers for attacks where it is not CALLERS.
MANY = {
    "long_polls": 24,
    "backtests": 1,
    "endless_queries": 2,
    "bursts": 1,
    "large_differences": 4,
    "slow_texts": 2,
}


def play(name: str, base_url: str, key: str) -> None:
    """Repeat one of the attacks until this process is killed."""
    if name in CONNECTIONS:
        CONNECTIONS[name](base_url, key)
    client = Client(base_url, key)

    def call(caller: int, callers: int) -> None:
        number = caller
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                ATTACKS[name](client, number)
            number += callers

    callers = MANY.get(name, CALLERS)
    for caller in range(1, callers):
        threading.Thread(target=call, args=(caller, callers), daemon=True).start()
    call(0, callers)


# -- B's requests --------------------------------------------------------------------------------


def ask(client: Client, rounds: int, since: int) -> tuple[dict[str, list[float]], int]:
    """Make B's requests in turn; return the milliseconds of each kind and how many failed."""
    times: dict[str, list[float]] = {"query": [], "record": [], "manifest": []}
    unanswered = 0
    user = PERSON.format(0)

    def timed(
        kind: str, do: Callable[[], tuple[int, Any]], good: Callable[[int, Any], bool]
    ) -> None:
        nonlocal unanswered
        began = time.perf_counter()
        try:
            status, answer = do()
            fine = good(status, answer)
        except (OSError, http.client.HTTPException) as error:
            status, answer, fine = 0, repr(error), False
        taken = time.perf_counter() - began
        times[kind].append(1000 * taken)
        if not fine or taken > UNANSWERED_SECONDS:
            unanswered += 1
            print(f"unanswered: {kind} after {taken:.1f} s: {status} {str(answer)[:400]}")

    for number in range(since, since + rounds):
        code = {"code": f"sum(p.cents for p in purchases) + {number}"}
        timed(
            "query",
            functools.partial(client.post, f"users/{user}/query/?wait=30", code),
            lambda status, answer: status == 200 and answer["outcome"] == "ok",
        )
        entry = purchase(f"b-{number}")
        timed(
            "record",
            functools.partial(client.post, f"users/{user}/entries/?wait=30", entry),
            lambda status, answer: status == 202 and answer["entries"][0]["state"] == "covered",
        )
        timed(
            "manifest",
            lambda: client.get(f"users/{user}/manifest/"),
            lambda status, _: status == 200,
        )
    return times, unanswered


def prepare(system: System, records: int) -> tuple[str, str]:
    """Create both workspaces with their people; return the workspaces' API keys."""
    a, b = (new_client(system, name, "read", "write", "manage") for name in (A, B))
    for client, people in ((a, PEOPLE), (b, 1)):
        for number in range(people):
            user = PERSON.format(number)
            expect(201, client.post("users/", {"user_id": user}))
            expect(202, client.post(f"users/{user}/entries/?wait=30", purchase("first")))
    expect(201, a.post("users/", {"user_id": LARGE}))
    a.post(f"users/{LARGE}/entries/?wait=30", purchase("first"))
    proposed = a.request("PUT", f"users/{LARGE}/constraints/overpaid/?wait=30", OVERPAID)
    assert proposed[0] in (200, 201, 202), proposed
    append(a, LARGE, [purchase(f"large-{index}", index) for index in range(records)])
    settle(system)
    return a.key, b.key


def settle(system: System) -> None:
    """Wait until all typed entries have been processed."""
    lanes = "SELECT count(*) FROM memory_lane WHERE name = 'records' AND due_at IS NOT NULL"
    with psycopg.connect(system.environment["DATABASE_URL"], autocommit=True) as database:
        until(lambda: database.execute(lanes).fetchone() == (0,), 600)


def calm_down(system: System, client: Client, since: int) -> None:
    """Cancel A's remaining work, wait until none is in progress, and make a few requests as B."""
    statement = (
        "from memory.constraints.models.backtests import Backtest;"
        "from memory.kernel.models.users import Lane;"
        "from memory.versions import runs; from memory.versions.models.runs import Run;"
        "runs.close(Run.objects.all(), 'the measurement is over');"
        "Backtest.objects.all().delete();"
        "Lane.objects.filter(user__workspace__name='neighbour-a').update(due_at=None)"
    )
    system.manage("shell", "-c", statement)
    settle(system)
    ask(client, 5, since)


def compare(
    attack: str, alone: Mapping[str, Sequence[float]], beside: Mapping[str, Sequence[float]]
) -> Iterator[Row]:
    """Yield a row for each kind of B's requests: its times alone and beside A's attack."""
    for kind, times in beside.items():
        yield {
            "A": attack,
            "B": kind,
            "p50_alone_ms": round(statistics.median(alone[kind]), 1),
            "p50_ms": round(statistics.median(times), 1),
            "p95_alone_ms": round(p95(alone[kind]), 1),
            "p95_ms": round(p95(times), 1),
            "p95_ratio": round(p95(times) / p95(alone[kind]), 2),
        }


def main() -> None:
    """Measure B alone and alongside each of A's attacks, and report the results."""
    line = parser(
        __doc__,
        rounds=(150, 3),  # rounds of B's requests, alone and alongside each attack
        warm_up=(3.0, 0.5),  # how many seconds A attacks before B is measured
        records=(RECORDS, 1000),
    )
    names = [*ATTACKS, *CONNECTIONS]
    line.add_argument("--attacks", nargs="+", choices=names, default=names)
    line.add_argument("--play", nargs=3, metavar=("ATTACK", "URL", "KEY"), help=argparse.SUPPRESS)
    asked = line.parse_args()
    if asked.play:
        play(*asked.play)
        return
    rows: list[Row] = []
    unanswered = 0
    with durable_system(environment={"UAC_SANDBOX_RUNNER": "docker"}) as system:
        key_a, key_b = prepare(system, asked.records)
        client = Client(system.base_url, key_b)
        ask(client, 3, 0)
        since = 1000
        for name in asked.attacks:
            alone, lost = ask(client, asked.rounds, since)
            since += asked.rounds
            unanswered += lost
            command = [sys.executable, "-m", "benchmarks.neighbours", "--play", name]
            attacker = subprocess.Popen([*command, system.base_url, key_a])
            try:
                time.sleep(asked.warm_up)
                beside, lost_beside = ask(client, asked.rounds, since)
            finally:
                attacker.kill()
                attacker.wait()
            since += asked.rounds
            unanswered += lost_beside
            for row in compare(name, alone, beside):
                rows.append({**row, "unanswered": lost_beside})
                print(*rows[-1].values(), flush=True)
            calm_down(system, client, since)
            since += 5
        system.check()
    report(
        "neighbours",
        settings={"rounds": asked.rounds, "records": asked.records},
        rows=rows,
        figures={
            "worst_p95_ratio": max(row["p95_ratio"] for row in rows),
            "unanswered": unanswered,
            **{f"{row['A']}_{row['B']}_ratio": row["p95_ratio"] for row in rows},
        },
        path=asked.json,
    )


if __name__ == "__main__":
    main()
