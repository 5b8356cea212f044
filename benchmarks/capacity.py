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
waits for answers. Requests that arrive at a station at the same time wait in one queue; if they
took turns on a core instead, they would wait as long on average.
"""

import heapq
import json
import math
import os
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Client, parser, report

if TYPE_CHECKING:
    from uac_site.embedded.system import System

Times = NDArray[np.float64]

COEFFICIENTS = Path(__file__).with_suffix(".toml")
USERS = (10_000, 100_000, 1_000_000)
DAY = 86_400.0
HOUR = 3_600.0
# A station has enough servers to be busy for at most this share of a peak hour and to keep 95 % of
# the waiting times below these, in seconds.
BUSY = 0.7
PATIENCE = {
    "web": 0.05,
    "database": 0.05,
    "sandboxes": 0.5,
    "default": 1.0,
    "language model": 60.0,
}
MIB = 2**20
GIB = 2**30


def fifo(arrivals: Times, services: Times, servers: int) -> Times:
    """Return how long each arrival waits in a single queue for the servers.

    `arrivals` must be sorted.
    """
    free = [0.0] * servers
    waits = np.empty(len(arrivals))
    for number, (at, takes) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        begins = max(at, free[0])
        heapq.heapreplace(free, begins + takes)
        waits[number] = begins - at
    return waits


def erlang_c(load: float, servers: int) -> float:
    """Return the probability of having to wait in an M/M/c queue (Erlang C).

    `load` is the arrival rate multiplied by the mean service time.
    """
    term, total = 1.0, 1.0
    for number in range(1, servers):
        term *= load / number
        total += term
    last = term * load / servers * servers / (servers - load)
    return last / (total + last)


@dataclass(frozen=True)
class Station:
    """The load and waiting times at a station with `servers` servers."""

    name: str
    servers: int
    per_second: float  # arrivals per second in the peak hour
    busy: float  # utilisation in the peak hour
    busy_all_day: float
    waits: Times
    ends: Times

    def row(self) -> dict[str, Any]:
        """Return the station's row in the table."""
        return {
            "station": self.name,
            "servers": self.servers,
            "at the peak, a second": _round(self.per_second),
            "busy at the peak": f"{self.busy:.0%}",
            "busy all day": f"{self.busy_all_day:.0%}",
            "wait p50": _seconds(float(np.quantile(self.waits, 0.5))),
            "wait p95": _seconds(float(np.quantile(self.waits, 0.95))),
            "wait p99": _seconds(float(np.quantile(self.waits, 0.99))),
        }


def station(
    name: str, arrivals: Times, services: Times, *, busy_per_day: float, lasts: float
) -> Station:
    """Simulate a station with as few servers as BUSY and PATIENCE allow.

    The arrivals are those in a span of `lasts` seconds.
    """
    order = np.argsort(arrivals, kind="stable")
    arrivals, services = arrivals[order], services[order]
    load = float(services.sum()) / lasts
    servers = max(1, math.ceil(load / BUSY))
    while True:
        waits = fifo(arrivals, services, servers)
        if float(np.quantile(waits, 0.95)) <= PATIENCE[name]:
            break
        servers += max(1, servers // 20)
    ends = np.empty(len(arrivals))
    ends[order] = arrivals + waits + services
    return Station(
        name,
        servers,
        len(arrivals) / lasts,
        load / servers,
        busy_per_day / DAY / servers,
        waits,
        ends,
    )


@dataclass(frozen=True)
class Coefficients:
    """Measured costs and assumed usage, from capacity.toml."""

    usage: Mapping[str, float]
    hours: Sequence[float]
    cpu: Mapping[str, Mapping[str, float]]  # CPU seconds by station and operation
    memory: Mapping[str, float]
    disk: Mapping[str, float]
    model: Mapping[str, float]
    prices: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, *paths: Path) -> "Coefficients":
        """Read coefficients from files; values in a later file override those in an earlier one."""
        found: dict[str, dict[str, Any]] = {}
        for path in paths:
            for name, table in tomllib.loads(path.read_text()).items():
                found.setdefault(name, {}).update(table)
        usage = found["usage"]
        return cls(
            usage={key: float(value) for key, value in usage.items() if key != "hours"},
            hours=usage["hours"],
            cpu=found["cpu"],
            memory=found["memory"],
            disk=found["disk"],
            model=found["model"],
            prices=found["prices"],
        )


@dataclass(frozen=True)
class Outcome:
    """The resources that a number of users needs."""

    users: int
    stations: Sequence[Station]
    figures: Mapping[str, Any]
    costs: Mapping[str, float]  # cost per month, by language model


class Day:
    """The requests of a number of users on one day."""

    def __init__(self, users: int, coefficients: Coefficients, seed: int = 1) -> None:
        self.users, self.given = users, coefficients
        self._chance = np.random.default_rng(seed)
        weights = np.array(coefficients.hours, dtype=float)
        self._weights = weights / weights.sum()
        self.peak_hour = int(self._weights.argmax())
        usage = coefficients.usage
        active = users * usage["active_a_day"]
        self.per_day = {
            operation: active * usage[operation]
            for operation in ("append", "record", "context", "query", "search", "list")
        }
        self.per_day["feed"] = usage["backends"] * DAY / usage["feed_every_seconds"]
        # The language model works on each session once it is over or has become long.
        self.works = active * usage["sessions"]

    def arrivals(self, per_day: float, hour: int | None = None) -> Times:
        """Return random arrival times in a day, or in one hour of it.

        They are in seconds since the start of the day or hour, in order.
        """
        hours = range(24) if hour is None else [hour]
        parts = []
        for place, one in enumerate(hours):
            number = self._chance.poisson(per_day * self._weights[one])
            parts.append((place + self._chance.random(number)) * HOUR)
        return np.sort(np.concatenate(parts))

    def run(self) -> Outcome:
        """Simulate the day.

        Stations that catch up within seconds are simulated for the peak hour only; the language
        model, whose work can pile up, is simulated for the whole day.
        """
        coming = {
            name: self.arrivals(number, self.peak_hour) for name, number in self.per_day.items()
        }
        web = self._station("web", coming)
        model = self._model()
        # Requests arrive at the other stations once the web station has handled them.
        of = np.concatenate([np.full(len(one), name) for name, one in coming.items()])
        later = {name: web.ends[of == name] for name in ("record", "query")}
        start = self.peak_hour * HOUR
        within = (model.ends >= start) & (model.ends < start + HOUR)
        later["proposal"] = model.ends[within] - start
        later["daily"] = self.arrivals(self._daily(), self.peak_hour)
        database = self._station("database", coming | {k: later[k] for k in ("proposal", "daily")})
        sandboxes = self._station("sandboxes", later)
        default = self._station("default", {k: v for k, v in later.items() if k != "query"})
        stations = (web, database, sandboxes, default, model)
        return Outcome(self.users, stations, self._figures(stations), self._costs())

    def _daily(self) -> float:
        return self.users * self.given.usage["constraint_runs_a_year"] / 365

    def _number(self, operation: str) -> float:
        other = {"proposal": self.works, "daily": self._daily()}
        return other[operation] if operation in other else self.per_day[operation]

    def _station(self, name: str, coming: Mapping[str, Times]) -> Station:
        cpu = self.given.cpu[name]
        arrivals = np.concatenate(list(coming.values()))
        services = [self._takes(cpu[key], len(times)) for key, times in coming.items()]
        busy = sum(cpu[key] * self._number(key) for key in coming)
        return station(name, arrivals, np.concatenate(services), busy_per_day=busy, lasts=HOUR)

    def _takes(self, mean: float, number: int) -> Times:
        # A gamma distribution spreads the computing times: few are much shorter than the mean, and
        # some are several times as long.
        return self._chance.gamma(4.0, mean / 4.0, number)

    def _model(self) -> Station:
        given = self.given.model
        seconds = given["calls_per_work"] * given["seconds_per_call"]
        arrivals = self.arrivals(self.works)
        services = self._takes(seconds, len(arrivals))
        busiest = self.works * float(self._weights.max()) * seconds / HOUR
        found = station(
            "language model", arrivals, services, busy_per_day=self.works * seconds, lasts=DAY
        )
        servers = max(found.servers, math.ceil(busiest / BUSY))
        waits = fifo(arrivals, services, servers)
        return Station(
            found.name,
            servers,
            self.works * float(self._weights.max()) / HOUR,
            busiest / servers,
            self.works * seconds / DAY / servers,
            waits,
            arrivals + waits + services,
        )

    def _figures(self, stations: Sequence[Station]) -> dict[str, Any]:
        web, database, sandboxes, default, model = stations
        memory, disk, usage = self.given.memory, self.given.disk, self.given.usage
        per_day = self.per_day
        entries = (
            per_day["append"] * usage["messages_per_append"]
            + per_day["record"]
            + self.works * usage["facts_per_session"]
        )
        versions = per_day["record"] + self.works
        runs = versions + per_day["query"] + self._daily()
        calls = self.works * self.given.model["calls_per_work"]
        size = {
            "entries": 365 * entries * disk["entry"],
            "versions": 365 * versions * disk["version"],
            "runs": min(365, usage["keep_runs_days"]) * runs * disk["run"],
            "calls": min(365, usage["keep_calls_days"]) * calls * disk["call"],
            "search": 365 * entries * disk["search_entry"],
        }
        resident = memory["resident"] * usage["resident_seconds"] * sandboxes.per_second
        llm_processes = math.ceil(model.servers / usage["llm_threads"])
        computing = sum(one.servers for one in (web, database, sandboxes, default))
        thinking = (
            model.per_second * self.given.model["calls_per_work"] * self.given.model["cpu_per_call"]
        )
        ram = {
            "web": web.servers * memory["web"],
            "sandboxes": sandboxes.servers
            * (memory["sandbox_worker"] / 2 + 4 * memory["container"])
            + resident,
            "default": default.servers * memory["default_worker"],
            "language model": llm_processes * memory["llm_worker"],
        }
        return {
            "cores": computing + math.ceil(thinking / BUSY),
            "requests a day": round(sum(per_day.values())),
            "entries a day": round(entries),
            "versions a day": round(versions),
            "runs a day": round(runs),
            "calls of the model a day": round(calls),
            "processes for the model": llm_processes,
            "GiB of RAM, without the database": _round(sum(ram.values()) / 1024),
            "GiB on disk after a year": _round(sum(size.values()) / GIB),
            **{f"of these, {name}": _round(number / GIB) for name, number in size.items()},
            "entries after a year": round(365 * entries),
        }

    def _costs(self) -> dict[str, float]:
        """Return the cost of a month of 30 days for each language model."""
        model, works = self.given.model, 30 * self.works
        fresh = works * model["input_tokens_per_work"] * (1 - model["cached"])
        cached = works * model["input_tokens_per_work"] * model["cached"]
        written = works * model["output_tokens_per_work"]
        return {
            name: (
                fresh * price["input"] + cached * price["cache_read"] + written * price["output"]
            )
            / 1e6
            for name, price in self.given.prices.items()
        }


def _round(number: float) -> float:
    """Round to two significant digits, since the simulation is no more accurate than that."""
    if number == 0:
        return 0
    digits = 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, digits)
    return int(rounded) if digits <= 0 else rounded


def _seconds(number: float) -> str:
    return f"{1000 * number:.0f} ms" if number < 1 else f"{number:.0f} s"


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
            **{f"{one.users:,} users": _round(one.costs[name]) for one in outcomes},
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


def measure(rounds: int, idle_seconds: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure the CPU time of each operation on a real server, done `rounds` times.

    Return a row for each operation, and the idle usage of each process as figures.
    """
    from benchmarks import load
    from uac_site.embedded.system import running_system

    with (
        tempfile.TemporaryDirectory(prefix="uac-") as folder,
        running_system(
            Path(folder) / "data", environment={"UAC_SANDBOX_RUNNER": "docker"}
        ) as system,
    ):
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


def measure_idle(system: "System", seconds: float) -> dict[str, float]:
    """Return how much of a core each process uses while there are no requests."""
    before, started = cpu_taken(system), time.monotonic()
    time.sleep(seconds)
    return {
        name: (cpu - before[name]) / (time.monotonic() - started)
        for name, cpu in cpu_taken(system).items()
    }


def measure_operation(
    system: "System",
    operation: str,
    clients: Sequence[tuple[Client, str]],
    rounds: int,
    idle: Mapping[str, float],
) -> dict[str, Any]:
    """Return an operation's row: its cost, without the CPU time that idle processes use anyway."""
    from benchmarks import load

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


def cpu_taken(system: "System") -> dict[str, float]:
    """Return the CPU seconds that each process has used so far."""
    from benchmarks import load

    watch = load.Watch(system)
    watch.look()
    return {name: samples[0].cpu for name, samples in watch.samples.items()}


def database_size(system: "System") -> int:
    """Return the size of the database in bytes."""
    import psycopg

    with psycopg.connect(system.environment["DATABASE_URL"]) as database:
        (found,) = database.execute("SELECT pg_database_size(current_database())").fetchone() or (
            0,
        )
        return int(found)


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
