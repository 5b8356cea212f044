"""The queueing model of `capacity`: stations, and the requests that pass through them in a day.

Requests that arrive at a station at the same time wait in one queue; if they took turns on a core
instead, they would wait as long on average.
"""

import heapq
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

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
            "at the peak, a second": round_figure(self.per_second),
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
            "GiB of RAM, without the database": round_figure(sum(ram.values()) / 1024),
            "GiB on disk after a year": round_figure(sum(size.values()) / GIB),
            **{f"of these, {name}": round_figure(number / GIB) for name, number in size.items()},
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


def round_figure(number: float) -> float:
    """Round to two significant digits, since the simulation is no more accurate than that."""
    if number == 0:
        return 0
    digits = 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, digits)
    return int(rounded) if digits <= 0 else rounded


def _seconds(number: float) -> str:
    return f"{1000 * number:.0f} ms" if number < 1 else f"{number:.0f} s"
