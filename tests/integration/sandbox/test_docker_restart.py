"""An engine that is restarted under load: one of our own, since the machine's belongs to others."""

import gc
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.docker_engine import Engine, missing, running_engine, skip_or_fail
from tests.integration.sandbox.conftest import value_of
from tests.integration.sandbox.engine import engine_at
from tests.processes import gone, me
from tests.waiting import eventually, scaled
from workers.sandbox import docker, ownership
from workers.sandbox import pool as pools
from workers.sandbox.client import Sandbox
from workers.sandbox.docker import ContainerChannel
from workers.sandbox.pool import Pool
from workers.sandbox.pool_state import PoolLimits
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def own_engine(docker_image: str) -> Iterator[Engine]:
    """An engine with the image, on which sandboxes are started."""
    skip_or_fail(missing())
    with running_engine(docker_image) as own, engine_at(own.host):
        yield own


def held() -> tuple[int, int]:
    docker._thread.__dict__.clear()
    gc.collect()  # the clients of other threads, which have ended
    return me().descriptors(), threading.active_count()


def container_of(sandbox: Sandbox) -> str:
    assert isinstance(sandbox._frames.channel, ContainerChannel)
    return sandbox._frames.channel.container


OWNER = "from domains.a.state import owner\nowner"


class Load:
    """Users who work in this context, those with a lease and those without."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.served: dict[str, set[str]] = defaultdict(set)  # container → users
        self.answers: Counter[str] = Counter()
        self.blamed: dict[str, list[bool]] = defaultdict(list)  # for each error, the user or not
        self._done = threading.Event()
        self._executor = ThreadPoolExecutor()

    def __enter__(self) -> "Load":
        users = ["ada", "bob", "strict cleo", "strict dan"]
        self._futures = [self._executor.submit(self._work, user) for user in users]
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for future in self._futures:
            future.result(scaled(120))  # nobody is stuck, and nobody saw anything but SandboxErrors
        self._executor.shutdown()

    def all_went_on(self) -> bool:
        """Return whether every user has got at least two answers."""
        return all(self.answers[user] >= 2 for user in ("ada", "bob", "strict cleo", "strict dan"))

    def all_failed(self) -> bool:
        """Return whether a failure was reported to every user."""
        return len(self.blamed) == 4

    def _work(self, user: str) -> None:
        while not self._done.is_set():
            try:
                self._use(user)
                self.answers[user] += 1
            except SandboxError as error:
                self.blamed[user].append(not error.infrastructure)
                self._done.wait(0.05)

    def _use(self, user: str) -> None:
        state = {"domains/a/state.py": f"owner = {user!r}"}
        if user.startswith("strict"):
            with self.pool.fresh() as sandbox:
                self.served[container_of(sandbox)].add(user)
                sandbox.load(state)
                assert value_of(sandbox, OWNER) == user
            return
        with self.pool.lease(user) as lease:
            self.served[container_of(lease.sandbox)].add(user)
            if not lease.tree:
                lease.sandbox.load(state)
                lease.tree = state
            assert value_of(lease.sandbox, OWNER) == user


@pytest.mark.parametrize("end", [Engine.kill, Engine.stop], ids=["killed", "stopped"])
def test_everybody_is_told_and_then_served_again(
    end: Callable[[Engine], None], own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "REAP_SECONDS", 0.5)
    at_first = held()
    limits = PoolLimits(least=2, most=3, lease_seconds=60, leases=4)
    with closing(Pool(docker, limits)) as pool:
        with Load(pool) as load:
            assert eventually(load.all_went_on)
            left = own_engine.runners()
            assert left
            end(own_engine)
            assert eventually(load.all_failed)

            own_engine.start()
            load.answers.clear()
            assert eventually(load.all_went_on)
            assert eventually(lambda: gone(left))  # whatever ran without an engine
            before = sum(map(len, load.blamed.values()))
            load.answers.clear()
            assert eventually(load.all_went_on)
            assert sum(map(len, load.blamed.values())) == before  # it is as it was
        assert not any(itertools.chain(*load.blamed.values()))
        assert all(len(users) == 1 for users in load.served.values())

        # Leftovers on the engine are found, and the pool is full again. With a shorter limit, a
        # container would be found while it still starts.
        monkeypatch.setattr(ownership, "LONGEST_START_SECONDS", 5)
        assert eventually(
            lambda: pool.settled and len(own_engine.containers()) == sum(pool.size.values())
        )
        with pool.fresh() as sandbox:
            assert value_of(sandbox, "1 + 1") == 2
    assert own_engine.containers() == set()
    assert eventually(lambda: held() == at_first)
