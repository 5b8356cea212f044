"""Run mixed work on one pool of containers for as long as you like, then check for leaks.

    make bench NAME=soak ARGS='--seconds 1800'

Users with and without leased sandboxes run queries and constraints and load new versions. Some of
their code runs forever, uses up the memory, floods its output or ends its sandbox. At the end,
there must be no container, file descriptor or thread that did not exist at the beginning. The
container engine's own resources are only reported, since other programs may use it, too.
"""

import gc
import os
import random
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import docker as engine

from benchmarks.harness import Measured, Row, embedded_server, parser, percentiles, report, until
from benchmarks.sandbox import NOW, PROJECT, ZONE

if TYPE_CHECKING:
    from workers.sandbox.interface import Sandbox
    from workers.sandbox.pool import Pool

THREADS = 4
LEASED = [f"leased {number}" for number in range(6)]
STRICT = [f"strict {number}" for number in range(2)]
RECORDS = PROJECT["domains/travel/state.py"].count("Trip(key=")

# How often each kind of work is done, in %.
SHARES = {
    "query": 40,
    "constraints": 25,
    "new version": 15,
    "source load": 8,
    "timeout": 4,
    "memory bomb": 3,
    "flood": 3,
    "killed runner": 2,
}
# Hostile code of each kind, and the outcome expected.
HOSTILE = {
    "timeout": ("while True: pass", "timeout"),
    "memory bomb": ("x = []\nwhile True: x.append('x' * 2 ** 20)", "out_of_memory"),
    "flood": ("while True: print('x' * 2 ** 16)", "output_limit"),
}


@dataclass(frozen=True)
class Held:
    """The amounts in use of everything that could leak."""

    containers: int
    descriptors: int
    threads: int
    mib: float
    engine_descriptors: int
    engine_mib: float


class Work:
    """The work done for the users: its times, and the problems found."""

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.problems: list[str] = []
        self._versions: Counter[str] = Counter()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    @property
    def requests(self) -> int:
        """The number of pieces of work done so far."""
        return sum(map(len, self.seconds.values()))

    def run(self, number: int, until: float) -> None:
        """Do one piece of work after another until this time on the monotonic clock."""
        chance = random.Random(number)
        first = list(SHARES)[number::THREADS]  # so that even a short run includes each kind
        while first or time.monotonic() < until:
            what = first.pop() if first else chance.choices(*zip(*SHARES.items(), strict=True))[0]
            user = chance.choice(LEASED + STRICT)
            started = time.perf_counter()
            try:
                # One piece of work at a time for each user, as in the workers.
                with self._locks[user]:
                    self._do(what, user)
            except Exception as error:
                self.problems.append(f"{what} of {user}: {error!r}")
            self.seconds[what].append(time.perf_counter() - started)

    def _do(self, what: str, user: str) -> None:
        if user in STRICT:
            with self.pool.fresh() as sandbox:
                sandbox.load(self._project(user))
                self._ask(what, user, sandbox)
            return
        with self.pool.lease(user, fresh=what == "source load") as lease:
            if not lease.tree:
                lease.sandbox.load(self._project(user))
                lease.tree = {"domains/travel/state.py": "hash"}
            self._ask(what, user, lease.sandbox)

    def _project(self, user: str) -> dict[str, str]:
        return {**PROJECT, **self._version(user)}

    def _version(self, user: str) -> dict[str, str]:
        version = f"owner, version = {user!r}, {self._versions[user]}\n"
        return {"domains/travel/owner.py": version}

    def _ask(self, what: str, user: str, sandbox: "Sandbox") -> None:
        import datetime

        from workers.sandbox.interface import SandboxError
        from workers.sandbox.limits import Limits

        now = datetime.datetime.fromisoformat(NOW)
        if what == "constraints":
            results = sandbox.run_constraints(now=now, time_zone=ZONE).results
            assert len(results) == 3
            assert all(result.error is None and result.alerts for result in results)
            return
        if what in HOSTILE or what == "killed runner":
            code, outcome = HOSTILE.get(what, ("", "killed"))
            limits = Limits(wall_seconds=0.2, memory_bytes=64 * 1024 * 1024)
            try:
                if code:
                    sandbox.evaluate(code, now=now, time_zone=ZONE, limits=limits)
                else:
                    sandbox.load({"domains/travel/end.py": "import os\nos._exit(1)"})
            except SandboxError as error:
                # On a busy machine, code may hit the time limit before the memory or output limit.
                if error.outcome not in (outcome, "timeout"):
                    raise
                return
            raise AssertionError(f"no {outcome}")
        if what == "new version":
            self._versions[user] += 1
            sandbox.load(self._version(user))
        code = "from domains.travel.owner import owner, version\n[owner, version, len(trips)]"
        found = sandbox.evaluate(code, now=now, time_zone=ZONE).value
        assert found == [user, self._versions[user], RECORDS], found


def soak(seconds: float) -> Measured:
    """Work for `seconds`; return a row for each kind of work, the figures and the problems."""
    from workers.sandbox import docker
    from workers.sandbox.pool import Pool
    from workers.sandbox.pool_state import PoolLimits

    limits = PoolLimits(least=2, most=4, lease_seconds=2, leases=4, recycle_seconds=20)

    def run() -> tuple[Work, int, float, float]:
        with closing(Pool(docker, limits)) as pool:
            work = Work(pool)
            _run(work, seconds / 3)
            warm, done = count(), work.requests
            _run(work, seconds * 2 / 3)
            late, thousands = count(), max(work.requests - done, 1) / 1000
        growth = (late.mib - warm.mib) / thousands
        return work, pool.counts.started, growth, (late.engine_mib - warm.engine_mib) / thousands

    with _counter() as count:
        at_first = count()
        # Work in a thread, so that its own resources, such as a connection to the engine, end with
        # it.
        with ThreadPoolExecutor(1) as executor:
            work, started, growth, engine_growth = executor.submit(run).result()
        with suppress(TimeoutError):  # a figure shows the leaked containers
            until(lambda: count().containers == at_first.containers, 20)
        at_last = count()
    rows: list[Row] = [
        {
            "work": what,
            "n": len(times),
            **percentiles(times, "p{} ms"),
        }
        for what, times in sorted(work.seconds.items())
    ]
    figures = {
        "requests": work.requests,
        "problems": len(work.problems),
        "containers": started,
        "leaked_containers": at_last.containers - at_first.containers,
        "leaked_descriptors": at_last.descriptors - at_first.descriptors,
        "leaked_threads": at_last.threads - at_first.threads,
        "rss_mib_per_1000": round(growth, 2),
        "engine_descriptors": at_last.engine_descriptors - at_first.engine_descriptors,
        "engine_rss_mib_per_1000": round(engine_growth, 2),
    }
    return rows, figures, work.problems


def _run(work: Work, seconds: float) -> None:
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(THREADS) as executor:
        list(executor.map(lambda number: work.run(number, end), range(THREADS)))


@contextmanager
def _counter() -> Iterator[Callable[[], Held]]:
    """Yield a function that counts what this process and the engine have in use."""
    from workers.sandbox.ownership import LABEL, owner

    with closing(engine.from_env()) as client:
        label = f"{LABEL}={owner(os.getpid())}"
        pid = _engine_pid()

        def count() -> Held:
            containers = client.api.containers(all=True, filters={"label": label})
            gc.collect()
            return Held(
                containers=len(containers),
                descriptors=_descriptors(os.getpid()),
                threads=threading.active_count(),
                mib=_resident_mib(os.getpid()),
                engine_descriptors=_descriptors(pid) if pid else 0,
                engine_mib=_resident_mib(pid) if pid else 0.0,
            )

        count()
        yield count


def _engine_pid() -> int | None:
    """Return the id of the process that listens on the engine's socket, if it can be inspected."""
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not path.startswith("unix://"):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path.removeprefix("unix://"))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid = int.from_bytes(credentials[:4], "little")
    try:
        _descriptors(pid)
    except OSError:
        return None
    return pid


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, seconds=(60.0, 3.0)).parse_args()
    with embedded_server():
        rows, figures, problems = soak(asked.seconds)
    report(
        "soak",
        settings={"seconds": asked.seconds, "threads": THREADS, "shares": SHARES},
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=problems,
    )


if __name__ == "__main__":
    main()
