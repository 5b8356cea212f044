"""Mixed work on one pool of containers leaves no container, file descriptor or thread behind.

Users with and without leased sandboxes run queries and constraints and load new versions. Some of
their code runs forever, uses up the memory, floods its output or ends its sandbox.
"""

import datetime
import gc
import operator
import os
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import docker as engine
import pytest

from benchmarks.sandbox import NOW, PROJECT, ZONE
from tests.waiting import polled
from workers.sandbox import docker
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.ownership import LABEL, owner
from workers.sandbox.pool import Pool
from workers.sandbox.pool_state import PoolLimits
from workers.sandbox.results import SandboxError

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]

SECONDS = 9
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


class Work:
    """The kinds of work done for the users, and the problems found."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.done: set[str] = set()
        self.problems: list[str] = []
        self._versions: Counter[str] = Counter()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def run(self, number: int, until: float) -> None:
        """Do one piece of work after another until this time on the monotonic clock."""
        chance = random.Random(number)
        first = list(SHARES)[number::THREADS]  # so that even a short run includes each kind
        while first or time.monotonic() < until:
            what = first.pop() if first else chance.choices(*zip(*SHARES.items(), strict=True))[0]
            user = chance.choice(LEASED + STRICT)
            try:
                # One piece of work at a time for each user, as in the workers.
                with self._locks[user]:
                    self._do(what, user)
            except Exception as error:
                self.problems.append(f"{what} of {user}: {error!r}")
            self.done.add(what)

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

    def _ask(self, what: str, user: str, sandbox: Sandbox) -> None:
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


def test_mixed_work_leaves_nothing_behind() -> None:
    limits = PoolLimits(least=2, most=4, lease_seconds=2, leases=4, recycle_seconds=20)

    def run() -> tuple[Work, int]:
        with closing(Pool(docker, limits)) as pool:
            work = Work(pool)
            end = time.monotonic() + SECONDS
            with ThreadPoolExecutor(THREADS) as executor:
                list(executor.map(lambda number: work.run(number, end), range(THREADS)))
        return work, pool.counts.started

    with closing(engine.from_env()) as client:
        in_use(client)
        before = in_use(client)
        # In a thread, so that its own resources, such as a connection to the engine, end with it.
        with ThreadPoolExecutor(1) as executor:
            work, started = executor.submit(run).result()

        assert work.problems == []
        assert work.done == set(SHARES)
        assert started > 10
        # The number may shrink as what earlier tests left behind is collected.
        polled(lambda: in_use(client), lambda now: all(map(operator.le, now, before)), seconds=20)


def in_use(client: engine.DockerClient) -> tuple[int, int, int]:
    """Return how many containers, file descriptors and threads this process has."""
    label = f"{LABEL}={owner(os.getpid())}"
    containers = client.api.containers(all=True, filters={"label": label})
    gc.collect()
    descriptors = len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))
    return len(containers), descriptors, threading.active_count()
