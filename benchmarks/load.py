"""Put a mixed load on a complete server: show what rate it sustains and what keeps growing.

    make bench NAME=load ARGS='--minutes 10'

Locust plays product backends that append messages and typed records, read the alerts feed, fetch
context, run queries, search, and list entries, for people in several workspaces. At first it makes
no pauses between requests, which shows the highest rate and the process that limits it; then it
keeps to a fraction of that rate for the given time. Meanwhile, typed records become versions,
constraints run in sandboxes, and alerts open and resolve. No language model is configured. At the
end, everything must be settled, and `verify` must find no problems.

The machine's load average is printed for each step, since other processes affect all figures.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.harness import Row, durable_system, expect, new_client, parser, report, until
from tests.concurrent_writers import OVERPAID
from uac_site.embedded.system import System

NAMES = [f"load-{number}" for number in range(4)]  # of the workspaces
PEOPLE = 15  # people per workspace
GUARDED = 5  # how many of these people have a constraint
BACKENDS = 8
SAMPLE_SECONDS = 5.0
MIB = 2**20


@dataclass(frozen=True)
class Sample:
    """Resources that a process and its descendants used: CPU time so far, and memory then."""

    at: float
    cpu: float
    rss: int
    pss: int


@dataclass
class Watch:
    """Samples the resource usage of a system's processes every few seconds."""

    system: System
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take samples during this context, and one at its end."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                self.look()
                stop.wait(SAMPLE_SECONDS)

        self.look()
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.look()

    def look(self) -> None:
        """Take a sample of each process."""
        self.loads.append(os.getloadavg()[0])
        for name, process in self.system.processes.items():
            with suppress(psutil.Error):
                taken = _taken(psutil.Process(process.pid))
                self.samples.setdefault(name, []).append(taken)

    def cpu(self, name: str) -> float:
        """Return how many processors a process kept busy on average."""
        first, last = self.samples[name][0], self.samples[name][-1]
        return (last.cpu - first.cpu) / (last.at - first.at)

    def memory(self, name: str, what: str = "pss") -> list[int]:
        """Return the memory in MiB at the start, after each quarter of the time, and at the end.

        Each value is the average of a few samples.
        """
        taken = [getattr(sample, what) for sample in self.samples[name]]
        few = max(1, len(taken) // 10)
        begins = [(len(taken) - few) * quarter // 4 for quarter in range(5)]
        return [round(sum(taken[begin:][:few]) / few / MIB) for begin in begins]


def _taken(process: psutil.Process) -> Sample:
    cpu, rss, pss = 0.0, 0, 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            times, memory = one.cpu_times(), one.memory_full_info()
            # A process's times for children include those that have ended.
            cpu += times.user + times.system + times.children_user + times.children_system
            rss, pss = rss + memory.rss, pss + memory.pss
    return Sample(time.monotonic(), cpu, rss, pss)


def prepare(system: System, people_each: int = PEOPLE) -> dict[str, Any]:
    """Create workspaces with `people_each` people, each with a project; return locust's profile."""
    clients = {name: new_client(system, name) for name in NAMES}
    people = [(name, f"person-{index}") for name in NAMES for index in range(people_each)]
    purchase = {"what": "tea", "cents": 100, "bought_on": "2025-03-01"}
    record = {"kind": "record", "domain": "money", "type": "Purchase", "key": "purchase-0"}
    for name, user in people:
        expect(201, clients[name].post("users/", {"user_id": user}))
        expect(202, clients[name].post(f"users/{user}/entries/", {**record, "data": purchase}))
    settled(system)
    for place, (name, user) in enumerate(people):
        if place % people_each < GUARDED:
            path = f"users/{user}/constraints/overpaid/?wait=0"
            status, answer = clients[name].request("PUT", path, OVERPAID)
            assert status in (200, 202), answer
    settled(system)
    keys = {name: client.key for name, client in clients.items()}
    return {"host": system.base_url, "keys": keys, "people": people}


def play(profile: Mapping[str, Any], seconds: float, rate: float) -> list[Row]:
    """Run locust for `seconds` at `rate` requests per second; return its counts by route."""
    with tempfile.TemporaryDirectory(prefix="uac-") as folder:
        settings, counted = Path(folder) / "profile.json", Path(folder) / "counted"
        backends = {"backends": BACKENDS, "requests_per_second": rate}
        settings.write_text(json.dumps({**profile, **backends}))
        command = [
            *(sys.executable, "-m", "locust", "-f", "benchmarks/load_profile.py", "--headless"),
            *("--users", str(BACKENDS), "--spawn-rate", str(BACKENDS), "--stop-timeout", "60"),
            *("--run-time", f"{seconds:.0f}s", "--json-file", str(counted), "--only-summary"),
            *("--exit-code-on-error", "0", "--loglevel", "WARNING"),
        ]
        finished = subprocess.run(
            command,
            env={**os.environ, "UAC_LOAD_PROFILE": str(settings)},
            capture_output=True,
            text=True,
            check=False,
        )
        found = next(Path(folder).glob("counted*"), None)
        if finished.returncode or found is None:
            raise RuntimeError(f"locust failed: {finished.stdout}{finished.stderr}")
        if "Error report" in finished.stdout:
            print(finished.stdout.partition("Error report")[2])
        rows: list[Row] = json.loads(found.read_text())
    return rows


def percentile(times: Mapping[str, int], part: float) -> float:
    """Return the milliseconds within which this share of requests was answered.

    `times` is a histogram: it maps milliseconds to numbers of requests.
    """
    left = part * sum(times.values())
    for milliseconds, number in sorted((float(key), count) for key, count in times.items()):
        left -= number
        if left <= 0:
            return milliseconds
    return 0.0


def routes(counted: Sequence[Mapping[str, Any]], seconds: float) -> list[Row]:
    """Return a row for each route, and one for all routes together."""
    rows = []
    everything: Counter[str] = Counter()
    for one in sorted(counted, key=lambda row: str(row["name"])):
        everything.update(one["response_times"])
        rows.append(_line(one["name"], one["response_times"], one["num_failures"], seconds))
    failures = sum(one["num_failures"] for one in counted)
    return [*rows, _line("all", everything, failures, seconds)]


def _line(name: str, times: Mapping[str, int], failures: int, seconds: float) -> Row:
    return {
        "route": name,
        "requests": sum(times.values()),
        "per_second": round(sum(times.values()) / seconds, 1),
        "p50_ms": round(percentile(times, 0.5)),
        "p95_ms": round(percentile(times, 0.95)),
        "p99_ms": round(percentile(times, 0.99)),
        "failures": failures,
    }


def settled(system: System) -> None:
    """Wait until no typed entry is pending and all runs are done.

    Messages stay pending, since no language model is configured.
    """
    statement = """
        SELECT EXISTS (SELECT FROM memory_run WHERE status <> 'done') OR EXISTS (
            SELECT FROM memory_logentry AS entry WHERE kind = 'record' AND NOT EXISTS (
                SELECT FROM memory_entryoutcome AS outcome
                WHERE outcome.user_id = entry.user_id AND outcome.seq = entry.seq))
    """

    def done() -> bool:
        with psycopg.connect(system.environment["DATABASE_URL"]) as database:
            return database.execute(statement).fetchone() == (False,)

    until(done, 900)


def main() -> None:
    """Run the benchmark and report the results."""
    line = parser(
        __doc__,
        minutes=(1.0, 0.05),  # minutes at the steady rate
        warm_up=(30.0, 1.0),  # seconds before the first measurement
        limit=(60.0, 3.0),  # seconds without pauses between requests
        people=(PEOPLE, 2),  # people per workspace
    )
    line.add_argument(
        "--rate",
        type=float,
        default=0.0,
        help="requests per second (default: 60 %% of the highest rate)",
    )
    line.add_argument("--sandbox-workers", type=int, default=1)
    asked = line.parse_args()
    with durable_system(
        sandbox_workers=asked.sandbox_workers, environment={"UAC_SANDBOX_RUNNER": "docker"}
    ) as system:
        flat_out, steady = Watch(system), Watch(system)  # without pauses, at the steady rate
        profile = prepare(system, asked.people)
        play(profile, asked.warm_up, rate=50)
        with flat_out.watching():
            most = routes(play(profile, asked.limit, rate=10_000), asked.limit)
        limit = most[-1]["per_second"]
        settled(system)
        rate = asked.rate or 0.6 * limit
        print(f"limit: {limit} requests per second; now {rate:.0f} for {asked.minutes:g} minutes")
        seconds = 60 * asked.minutes
        with steady.watching():
            rows = routes(play(profile, seconds, rate), seconds)
        ended = time.monotonic()
        settled(system)
        to_settle = time.monotonic() - ended
        verified = system.manage("verify").rstrip().splitlines()[-1]
        system.check()
    processes, people = process_rows(flat_out, steady), len(profile["people"])
    report("limit", settings={}, rows=most, figures={}, path=None)
    report("processes (memory in MiB)", settings={}, rows=processes, figures={}, path=None)
    report(
        "load",
        settings={**vars(asked), "json": None, "backends": BACKENDS, "people": people},
        rows=rows,
        figures={
            "limit_per_second": limit,
            "per_second": rows[-1]["per_second"],
            "failures": rows[-1]["failures"] + most[-1]["failures"],
            "seconds_to_settle": round(to_settle, 1),
            "verify": verified,
            "load_at_the_limit": round(statistics.fmean(flat_out.loads), 1),
            "load": round(statistics.fmean(steady.loads), 1),
            "processes": processes,
        },
        path=asked.json,
    )


def process_rows(flat_out: Watch, steady: Watch) -> list[Row]:
    """Return a row for each process: processors used, and memory at the steady rate."""
    parts = ("pss_start", "pss_1_4", "pss_half", "pss_3_4", "pss_end")
    return [
        {
            "process": name,
            "cpus_at_the_limit": round(flat_out.cpu(name), 2),
            "cpus": round(steady.cpu(name), 2),
            **dict(zip(parts, steady.memory(name), strict=True)),
            "rss_end": steady.memory(name, "rss")[-1],
        }
        for name in steady.samples
    ]


if __name__ == "__main__":
    main()
