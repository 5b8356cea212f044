"""Simulate what a number of users needs: processor cores, memory, disk, workers, tokens and money.

    make bench NAME=capacity                        the tables in docs/capacity.md
    make bench NAME=capacity ARGS='--users 50000 --usage mine.toml'
    make bench NAME=capacity ARGS=--measure         the cost of operations on this machine

A day's requests arrive at random (as a Poisson process), more often by day than by night, and pass
through the stations that handle them: web, database, sandboxes, language model. Each station has a
queue and as many servers as a peak hour requires. `capacity.toml` contains the time that each
operation takes, with the benchmark that measured it, and assumptions about how people use the
product: replace these with your own.

A station's server is one processor core, except at the language model, where it is a thread that
waits for answers.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.capacity_model import Coefficients, Day, Outcome, round_figure
from benchmarks.harness import (
    Client,
    Row,
    durable_system,
    expect,
    new_client,
    parser,
    report,
    until,
)
from benchmarks.overpaid import OVERPAID
from deploy.embedded.system import System

COEFFICIENTS = Path(__file__).with_suffix(".toml")
USERS = (10_000, 100_000, 1_000_000)
WORKSPACES = [f"load-{number}" for number in range(4)]
PEOPLE = 15  # people per workspace
GUARDED = 5  # how many of these people have a constraint


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    columns = list(rows[0])
    lines = [
        columns,
        ["---"] * len(columns),
        *([_cell(row[key]) for key in columns] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def text(outcomes: Sequence[Outcome]) -> str:
    """Return the part of docs/capacity.md that this command prints."""
    figures = [
        {"a deployment of": name, **{f"{one.users:,} users": one.figures[name] for one in outcomes}}
        for name in outcomes[0].figures
    ]
    costs = [
        {
            "a month, of": name,
            **{f"{one.users:,} users": round_figure(one.costs[name]) for one in outcomes},
        }
        for name in outcomes[0].costs
    ]
    queues = [{"users": one.users, **station.row()} for one in outcomes for station in one.stations]
    return "\n\n".join(table(rows) for rows in (figures, queues, costs)) + "\n"


def simulated(users: Sequence[int], *paths: Path) -> list[Outcome]:
    """Simulate a day for each number of users."""
    coefficients = Coefficients.read(COEFFICIENTS, *paths)
    return [Day(number, coefficients).run() for number in users]


# -- The cost of operations ------------------------------------------------------------------------


PURCHASE = {"kind": "record", "domain": "money", "type": "Purchase"}
# The method, path and body of each operation. A path is relative to the user's, unless it begins
# with ../../.
OPERATIONS: dict[str, tuple[str, str, Callable[[int], Any]]] = {
    "append": ("POST", "entries/", lambda n: {"kind": "message", "content": f"It is {n}."}),
    "record": (
        "POST",
        "entries/",
        lambda n: {**PURCHASE, "key": f"p-{n % 40}", "data": {"what": f"tea {n}", "cents": n}},
    ),
    "context": ("POST", "context/", lambda n: {"query": f"tea {n}", "tokens": 1500}),
    "query": ("POST", "query/?wait=30", lambda n: {"code": f"len(purchases) + {n}"}),
    "search": ("POST", "search/", lambda n: {"query": f"tea {n}", "top_k": 10}),
    "list": ("GET", "entries/?page_size=50", lambda n: None),
    "feed": ("GET", "../../events/?after=0", lambda n: None),
}


def measure(rounds: int, idle_seconds: float) -> tuple[list[Row], dict[str, Any]]:
    """Measure the CPU time of each operation on a real server, done `rounds` times.

    Return a row for each operation, and the idle usage of each process as figures.
    """
    with durable_system(environment={"UAC_SANDBOX_RUNNER": "docker"}) as system:
        clients = prepare(system)
        idle = measure_idle(system, idle_seconds)
        rows = [
            measure_operation(system, operation, clients, rounds, idle) for operation in OPERATIONS
        ]
    return rows, {f"idle_{name}": round(cpu, 3) for name, cpu in idle.items()}


def prepare(system: System) -> list[tuple[Client, str]]:
    """Create workspaces with people, each with a project; return each person with a client."""
    people = [
        (client, f"person-{number}")
        for client in [new_client(system, name) for name in WORKSPACES]
        for number in range(PEOPLE)
    ]
    data = {"what": "tea", "cents": 100, "bought_on": "2025-03-01"}
    first = {**PURCHASE, "key": "purchase-0", "data": data}
    for client, user in people:
        expect(201, client.post("users/", {"user_id": user}))
        expect(202, client.post(f"users/{user}/entries/", first))
    until_settled(system)
    for number, (client, user) in enumerate(people):
        if number % PEOPLE < GUARDED:
            path = f"users/{user}/constraints/overpaid/?wait=0"
            status, answer = client.request("PUT", path, OVERPAID)
            assert status in (200, 202), answer
    until_settled(system)
    return people


def until_settled(system: System) -> None:
    """Wait until no typed entry is pending and all runs are done.

    Messages stay pending, since no language model is configured.
    """
    statement = """
        SELECT EXISTS (SELECT FROM memory_run WHERE status <> 'done') OR EXISTS (
            SELECT FROM memory_logentry AS entry WHERE kind = 'record' AND NOT EXISTS (
                SELECT FROM memory_entryoutcome AS outcome
                WHERE outcome.user_id = entry.user_id AND outcome.seq = entry.seq))
    """

    def is_settled() -> bool:
        with psycopg.connect(system.environment["DATABASE_URL"]) as database:
            return database.execute(statement).fetchone() == (False,)

    until(is_settled, 900)


def measure_idle(system: System, seconds: float) -> dict[str, float]:
    """Return how much of a core each process uses while there are no requests."""
    before, started = cpu_taken(system), time.monotonic()
    time.sleep(seconds)
    return {
        name: (cpu - before[name]) / (time.monotonic() - started)
        for name, cpu in cpu_taken(system).items()
    }


def measure_operation(
    system: System,
    operation: str,
    clients: Sequence[tuple[Client, str]],
    rounds: int,
    idle: Mapping[str, float],
) -> Row:
    """Return an operation's row: its cost, without the CPU time that idle processes use anyway."""
    method, path, body = OPERATIONS[operation]
    bytes_before, before, started = database_size(system), cpu_taken(system), time.monotonic()
    for number in range(rounds):
        client, user = clients[number % len(clients)]
        where = path[6:] if path.startswith("../../") else f"users/{user}/{path}"
        status, answer = client.request(method, where, body(number))
        assert status in (200, 202), answer
    if operation == "record":
        until_settled(system)
    lasted = time.monotonic() - started
    return {
        "operation": operation,
        **{
            f"{name} ms": round(1000 * (cpu - before[name] - idle[name] * lasted) / rounds, 2)
            for name, cpu in cpu_taken(system).items()
        },
        "bytes": round((database_size(system) - bytes_before) / rounds),
    }


def cpu_taken(system: System) -> dict[str, float]:
    """Return the CPU seconds that each process has used so far."""
    taken = {}
    for name, process in system.processes.items():
        with suppress(psutil.Error):
            taken[name] = _cpu_seconds(psutil.Process(process.pid))
    return taken


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    seconds = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            times = one.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def database_size(system: System) -> int:
    """Return the size of the database in bytes."""
    with psycopg.connect(system.environment["DATABASE_URL"]) as database:
        found = database.execute("SELECT pg_database_size(current_database())").fetchone()
        assert found is not None
        return int(found[0])


def main() -> None:
    """Simulate or measure, and print the results."""
    line = parser(__doc__, users=(USERS, (1000,)), rounds=(300, 5), idle_seconds=(20.0, 1.0))
    line.add_argument(
        "--usage", type=Path, nargs="*", default=(), help="files with other coefficients"
    )
    line.add_argument("--measure", action="store_true")
    asked = line.parse_args()
    if asked.measure:
        rows, figures = measure(asked.rounds, asked.idle_seconds)
        figures["load"] = os.getloadavg()[0]
        report(
            "capacity",
            settings={"rounds": asked.rounds},
            rows=rows,
            figures=figures,
            path=asked.json,
        )
        return
    outcomes = simulated(asked.users, *asked.usage)
    print(text(outcomes), end="")
    if asked.json:
        found = [{"users": one.users, **one.figures, "costs": one.costs} for one in outcomes]
        asked.json.write_text(json.dumps({"name": "capacity", "figures": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
