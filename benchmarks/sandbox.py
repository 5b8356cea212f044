"""Compare how fast our sandboxes, `docker run`, `docker exec` and llm-sandbox run constraints.

The work is to run three constraints on a 30 KB project with 500 records. All variants take turns in
one run on one machine, so that their times can be compared:

- `llm-sandbox`: the library of that name with its own pool (see `llm_sandbox_peer.py`)
- `docker run`: this command, with the same container settings, source and answer as the others
- `docker exec`: a new Python process in an equally confined container that keeps running
- `fresh, bytecode` and `fresh, source`: a container that was kept ready, including the load
- `resident`: the constraints again, in a container where the project is already loaded
- `refill`: `fresh, bytecode` at two arrivals per second, while the pool refills itself
- `query`: a query over HTTP and Celery to a resident project, until the answer arrives
- evaluations per second by several threads, each on its own resident project, and containers per
  second that two threads create, start, confine and remove, and what each costs: the time that the
  machine's processors are busy, which only means something if nobody else uses the machine
"""

import datetime
import http.client
import json
import logging
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil

from benchmarks.harness import (
    Row,
    embedded_server,
    expect,
    new_client,
    p95,
    parser,
    percentiles,
    report,
    until,
)
from benchmarks.llm_sandbox_peer import SCRIPT
from deploy.embedded.system import running_system
from sandbox_image.uac import protocol

if TYPE_CHECKING:
    from workers.sandbox.client import Sandbox
    from workers.sandbox.pool import Pool
    from workers.sandbox.pool_stock import Lease

ARRIVALS_A_SECOND = 2.0
CONCURRENCY = (1, 2, 4, 8)
IDLE = 8
SETTLE_SECONDS = 0.1  # time allowed for background work
NOW = "2026-03-01T12:00:00+00:00"
ZONE = "Europe/Berlin"
TRIPS = 500

RECORDS = "".join(
    f'    Trip(key="t-{n}", name="City {n}", cost={n * 7 % 997}, sources=({n + 1},)),\n'
    for n in range(TRIPS)
)
CONSTRAINT = '''\
import datetime
from collections.abc import Iterator
from uac import Alert, warning
from domains.travel.state import trips


def check(today: datetime.date) -> Iterator[Alert]:
    """No trip costs more than was allowed for one."""
    for trip in trips:
        if trip.cost > 950 and trip.cost % 3 == {number}:
            yield warning(
                f"{{trip.name}} cost {{trip.cost}}, more than was allowed", evidence=[trip]
            )
'''
PROJECT = {
    "domains/__init__.py": "",
    "domains/travel/__init__.py": "",
    "domains/travel/schema.py": "from dataclasses import dataclass\n"
    "from uac import Record\n\n\n@dataclass(kw_only=True)\nclass Trip(Record):\n"
    "    name: str\n    cost: int\n",
    "domains/travel/state.py": "from domains.travel.schema import Trip\n\n"
    f"trips: list[Trip] = [\n{RECORDS}]\n",
    "constraints/__init__.py": "",
    **{f"constraints/c{n}.py": CONSTRAINT.format(number=n) for n in range(3)},
}


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(
        __doc__,
        rounds=(50, 1),
        arrivals=(50, 2),
        seconds=(4.0, 0.3),  # duration of each measurement of throughput
        queries=(60, 3),
        containers=(100, 2),  # whose cost is measured
    ).parse_args()
    with embedded_server():
        times, figures = measure(asked.rounds, asked.arrivals, asked.seconds, asked.containers)
    figures |= whole_path(asked.queries)
    rows: list[Row] = [
        {
            "variant": name,
            "n": len(seconds),
            **percentiles(seconds, "p{} ms", digits=2),
            "x p50": round(statistics.median(times["docker run"]) / statistics.median(seconds), 1),
            "x p95": round(p95(times["docker run"]) / p95(seconds), 1),
        }
        for name, seconds in times.items()
    ]
    fresh = statistics.median(times["fresh, bytecode"])
    ratios = {row["variant"]: row["x p50"] for row in rows}
    figures |= {
        "docker_exec_ratio": round(statistics.median(times["docker exec"]) / fresh, 1),
        "llm_sandbox_ratio": round(statistics.median(times["llm-sandbox"]) / fresh, 1),
        "fresh_bytecode_ratio": ratios["fresh, bytecode"],
        "resident_ratio": ratios["resident"],
        "fresh_source_ratio": ratios["fresh, source"],
        "refill_ratio": ratios["refill"],
    }
    settings = {"rounds": asked.rounds, "project_bytes": sum(map(len, PROJECT.values()))}
    report("sandbox", settings=settings, rows=rows, figures=figures, path=asked.json)


def measure(
    rounds: int, arrivals: int, throughput_seconds: float, containers: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Measure everything but the queries; return each variant's seconds, and the other figures."""
    from benchmarks.llm_sandbox_peer import peer
    from workers.sandbox import docker
    from workers.sandbox.build import ensure_image
    from workers.sandbox.pool import Pool
    from workers.sandbox.pool_stock import PoolLimits

    logging.disable(logging.WARNING)  # otherwise llm-sandbox would log every step
    image = ensure_image()
    idle_mib = idle_memory(lambda: docker.start())
    limits = PoolLimits(least=4, most=8, least_others=0, lease_seconds=600, leases=10)
    pool = Pool(docker, limits)
    with ExitStack() as stack:
        stack.callback(pool.close)
        other = stack.enter_context(peer(image, PROJECT))
        container = stack.enter_context(idle_container(image))
        with pool.fresh() as sandbox:
            bytecode = sandbox.compile(PROJECT)
            sandbox.prepare(bytecode=bytecode)
            answer_bytes = run_constraints(sandbox)
        variants: dict[str, Callable[[], float]] = {
            "docker run": lambda: docker_run(image),
            "docker exec": lambda: docker_exec(container),
            "llm-sandbox": lambda: time_peer(other),
            "fresh, bytecode": lambda: time_fresh(pool, bytecode=bytecode),
            "fresh, source": lambda: time_fresh(pool, sources=PROJECT),
            "resident": lambda: time_resident(pool, bytecode),
        }
        times = take_turns(pool, variants, rounds)
        times["refill"] = time_arrivals(arrivals, variants["fresh, bytecode"])
        figures = {
            f"evaluations_a_second_{threads}": throughput(
                threads, throughput_seconds, lambda user: resident_again(pool, user, bytecode)
            )
            for threads in CONCURRENCY
        }
    figures["containers_a_second"] = throughput(
        2, throughput_seconds, lambda user: docker.start().close()
    )
    figures["core_seconds_a_container"] = container_cost(containers, lambda: docker.start())
    return times, figures | {"idle_mib": idle_mib, "answer_bytes": answer_bytes}


def run_constraints(sandbox: "Sandbox") -> int:
    """Run the project's constraints; return the size in bytes of their results as JSON."""
    from workers.execution.results import result_json

    ran = sandbox.run_constraints(now=datetime.datetime.fromisoformat(NOW), time_zone=ZONE)
    assert len(ran.results) == 3
    assert all(result.error is None and result.alerts for result in ran.results)
    return len(json.dumps([result_json(result) for result in ran.results]))


def time_peer(peer: Callable[[], int]) -> float:
    """Return the seconds that llm-sandbox takes."""
    started = time.perf_counter()
    assert peer() > 0
    return time.perf_counter() - started


def time_fresh(pool: "Pool", **files: Any) -> float:
    """Return the seconds that a ready container takes to load these files and run constraints."""
    started = time.perf_counter()
    with pool.fresh() as sandbox:
        sandbox.prepare(**files)
        run_constraints(sandbox)
        return time.perf_counter() - started


def time_resident(pool: "Pool", bytecode: dict[str, str]) -> float:
    """Return the seconds that running the constraints takes where the project is already loaded."""
    with pool.lease("ada") as lease:
        if not lease.tree:
            load(lease, bytecode)
            run_constraints(lease.sandbox)
    time.sleep(SETTLE_SECONDS)
    started = time.perf_counter()
    with pool.lease("ada") as lease:
        run_constraints(lease.sandbox)
        return time.perf_counter() - started


def take_turns(
    pool: "Pool", variants: dict[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Run all variants in every round, with the pool at rest; return the seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, variant in variants.items():
            until(lambda: pool.settled)
            time.sleep(SETTLE_SECONDS)
            seconds = variant()
            if number:  # the first round only warms up
                times[name].append(seconds)
    return times


def time_arrivals(arrivals: int, variant: Callable[[], float]) -> list[float]:
    """Run a variant at a rate of ARRIVALS_A_SECOND; return the seconds that each run took."""
    times = []
    start = time.perf_counter()
    for number in range(arrivals):
        time.sleep(max(0.0, start + number / ARRIVALS_A_SECOND - time.perf_counter()))
        times.append(variant())
    return times


def load(lease: "Lease", bytecode: dict[str, str]) -> None:
    """Load the project into a leased sandbox that has none loaded."""
    lease.sandbox.load(bytecode=bytecode)
    lease.tree = dict.fromkeys(bytecode, "")


def resident_again(pool: "Pool", user: str, bytecode: dict[str, str]) -> None:
    """Run the constraints in the user's leased sandbox; load the project first if necessary."""
    with pool.lease(user) as lease:
        if not lease.tree:
            load(lease, bytecode)
        run_constraints(lease.sandbox)


def throughput(threads: int, seconds: float, work: Callable[[str], None]) -> float:
    """Return how many times per second `threads` threads do the work, each for its own user."""
    users = [f"user-{number}" for number in range(threads)]
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, users))  # do one-time work, such as loading, before timing starts
        stop_at = time.monotonic() + seconds

        def repeat(user: str) -> int:
            done = 0
            while time.monotonic() < stop_at:
                work(user)
                done += 1
            return done

        return round(sum(executor.map(repeat, users)) / seconds, 1)


def confined() -> list[str]:
    """Return the options for `docker run` that confine a container like our sandboxes."""
    from workers.sandbox.container_template import SECCOMP_PROFILE, container_config

    template = container_config("", 0)
    host = template["HostConfig"]
    return [
        *("--network", "none", "--ipc", "none", "--read-only", "--cap-drop", "ALL"),
        *("--log-driver", "none", "--user", template["User"]),
        *("--security-opt", "no-new-privileges"),
        *("--security-opt", f"seccomp={SECCOMP_PROFILE}"),
        *("--memory", str(host["Memory"]), "--memory-swap", str(host["MemorySwap"])),
        *("--pids-limit", str(host["PidsLimit"]), "--cpus", str(host["NanoCpus"] / 1e9)),
        *("--env", template["Env"][0]),
    ]


@contextmanager
def idle_container(image: str) -> Iterator[str]:
    """Keep an idle container running, in which programs can be run; yield its id."""
    python = ["--entrypoint", "python3", image, "-c", "import time; time.sleep(3600)"]
    command = ["docker", "run", "--rm", "--detach", *confined(), *python]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    container = ran.stdout.strip()
    try:
        yield container
    finally:
        subprocess.run(["docker", "kill", container], capture_output=True, check=True)


def docker_exec(container: str) -> float:
    """Time `docker exec -i` of Python code that loads the project and runs its constraints."""
    code = SCRIPT.format(files=json.dumps(PROJECT))
    command = ["docker", "exec", "-i", container, "python3", "-I", "-"]
    started = time.perf_counter()
    ran = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)
    return time.perf_counter() - started


def docker_run(image: str) -> float:
    """Time `docker run --rm -i` of a runner that is sent our requests, until it has exited."""
    from workers.sandbox.limits import DEFAULT_LIMITS, LOAD_LIMITS

    requests = [
        {
            "id": 1,
            "op": "load",
            "limits": asdict(LOAD_LIMITS),
            "sources": PROJECT,
            "bytecode": {},
            "removed": [],
        },
        {
            "id": 2,
            "op": "constraints",
            "limits": asdict(DEFAULT_LIMITS),
            "paths": None,
            "now": NOW,
            "time_zone": ZONE,
        },
    ]
    command = ["docker", "run", "--rm", "-i", *confined(), image]
    data = b"".join(map(protocol.encode_frame, requests))
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(data)
        process.stdin.flush()
        answers = [protocol.read_frame(process.stdout.read) for _ in range(3)]
        process.stdin.close()
        process.wait()
    seconds = time.perf_counter() - started
    assert answers[2] is not None
    assert len(answers[2]["result"]) == 3
    return seconds


def idle_memory(start: Callable[[], Any]) -> float:
    """Return by how many MiB each idle container lowers MemAvailable."""
    before = available()
    sandboxes = [start() for _ in range(IDLE)]
    time.sleep(1)
    after = available()
    for sandbox in sandboxes:
        sandbox.close()
    return round((before - after) / IDLE / 1024, 1)


def container_cost(containers: int, start: Callable[[], Any]) -> float:
    """Return for how many seconds one core is busy per container, from creation to removal."""
    with ThreadPoolExecutor(2) as executor:
        before = busy_seconds()
        for _ in executor.map(lambda number: start().close(), range(containers)):
            pass
        time.sleep(1)  # the kernel and the engine clean up after the last ones
        return round((busy_seconds() - before) / containers, 3)


def busy_seconds() -> float:
    """Return for how long this machine's cores have been busy since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.steal - times.guest)


def available() -> int:
    """Return MemAvailable in KiB."""
    found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def whole_path(queries: int) -> dict[str, float]:
    """Time queries over HTTP to a resident project: in total, and without the run itself."""
    whole, ours = [], []
    with running_system(environment={"UAC_SANDBOX_RUNNER": "docker"}) as system:
        client = new_client(system, "benchmark")
        expect(201, client.post("users/", {"user_id": "ada"}))
        trip = {"kind": "record", "domain": "travel", "type": "Trip"}
        entries = [
            {**trip, "key": f"t-{number}", "data": {"name": f"City {number}", "cost": number}}
            for number in range(TRIPS)
        ]
        expect(202, client.post("users/ada/entries/?wait=30", {"entries": entries}))
        connection = http.client.HTTPConnection(urlsplit(system.base_url).netloc)
        headers = {"Authorization": f"Bearer {client.key}", "Content-Type": "application/json"}
        for number in range(queries + 5):
            # Code that has not run before; repeated code would be answered without a sandbox.
            body = json.dumps({"code": f"sum(t.cost for t in trips)  # {number}"})
            started = time.perf_counter()
            connection.request("POST", "/v1/users/ada/query/?wait=30", body, headers)
            answer = json.load(connection.getresponse())
            seconds = time.perf_counter() - started
            assert answer.get("value") == sum(range(TRIPS)), answer
            if number >= 5:
                whole.append(seconds)
                ours.append(seconds - answer["timings"]["total"])
    return {**percentiles(whole, "query_ms_p{}"), **percentiles(ours, "overhead_ms_p{}")}


if __name__ == "__main__":
    main()
