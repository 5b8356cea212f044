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
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import load
from benchmarks.capacity_model import Coefficients, Day, Outcome, round_figure
from benchmarks.harness import Client, Row, durable_system, parser, report
from uac_site.embedded.system import System

COEFFICIENTS = Path(__file__).with_suffix(".toml")
USERS = (10_000, 100_000, 1_000_000)


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
    "feed": ("GET", "../../alerts/?after=0", lambda n: None),
}


def measure(rounds: int, idle_seconds: float) -> tuple[list[Row], dict[str, Any]]:
    """Measure the CPU time of each operation on a real server, done `rounds` times.

    Return a row for each operation, and the idle usage of each process as figures.
    """
    with durable_system(environment={"UAC_SANDBOX_RUNNER": "docker"}) as system:
        profile = load.prepare(system)
        clients = [
            (Client(system.base_url, profile["keys"][workspace]), user)
            for workspace, user in profile["people"]
        ]
        idle = measure_idle(system, idle_seconds)
        rows = [
            measure_operation(system, operation, clients, rounds, idle) for operation in OPERATIONS
        ]
    return rows, {f"idle_{name}": round(cpu, 3) for name, cpu in idle.items()}


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
        load.settled(system)
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
    watch = load.Watch(system)
    watch.look()
    return {name: samples[0].cpu for name, samples in watch.samples.items()}


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
