"""The pool's guarantees, with sandboxes that only record what was done to them."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.waiting import eventually
from workers.sandbox import interface, pool_stock
from workers.sandbox import pool as pools
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import DEFAULT_SHAPE, Shape
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import Lease, PoolLimits
from workers.sandbox.results import SandboxError

KEEPING = PoolLimits(least=2, most=4, least_others=1, lease_seconds=60, leases=3, reap=True)


class Fake:
    """A sandbox that was started with a hash seed, in a shape."""

    def __init__(self, hash_seed: int, shape: Shape, image_digest: str) -> None:
        self.hash_seed = hash_seed
        self.image_digest = image_digest
        self.shape = shape
        self.users: set[str] = set()
        self.alive = True
        self.spent = False

    def close(self) -> None:
        self.alive = False


class Runner:
    """Starts them, or fails while it is told to."""

    def __init__(self) -> None:
        self.started: list[Fake] = []
        self.error: Exception | None = None
        self.digest = "fake"
        self.reaped = 0

    def start(self, *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
        if self.error is not None:
            raise self.error
        self.started.append(Fake(hash_seed, shape, self.digest))
        return cast("Sandbox", self.started[-1])

    def image_digest(self) -> str:
        return self.digest

    def reap(self) -> int:
        self.reaped += 1
        if self.error is not None:
            raise self.error
        return 0

    @property
    def alive(self) -> list[Fake]:
        return [one for one in self.started if one.alive]


@pytest.fixture
def runner() -> Runner:
    return Runner()


@contextmanager
def opened(runner: Runner, **limits: Any) -> Iterator[Pool]:
    pool = Pool(cast("interface.Runner", runner), PoolLimits(**{**vars(KEEPING), **limits}))
    try:
        yield pool
    finally:
        pool.close()
        assert runner.alive == []
        assert not [one for one in threading.enumerate() if one.name.startswith("sandboxes")]


def fake(lease: Lease | Sandbox) -> Fake:
    return cast("Fake", lease.sandbox if isinstance(lease, Lease) else lease)


def use(pool: Pool, user: str, *, keep: bool = True, **options: Any) -> Fake:
    """Take a lease and load something, as a user's work does."""
    with pool.lease(user, **options) as lease:
        one = fake(lease)
        assert one.alive
        one.users.add(user)
        assert one.users == {user}
        if keep:
            lease.tree = {"a.py": "hash"}
        return one


def test_fresh_ones_are_there_before_anybody_asks(runner: Runner) -> None:
    with opened(runner) as pool:
        pool.warm()
        assert eventually(lambda: pool.size["fresh"] == 2)

        with pool.fresh() as sandbox:
            assert fake(sandbox).alive
        assert (pool.counts.hits, pool.counts.misses) == (1, 0)
        assert eventually(lambda: not fake(sandbox).alive)
        assert eventually(lambda: pool.settled and pool.size["fresh"] >= 2)


def test_without_one_in_store_somebody_waits_for_a_new_one(runner: Runner) -> None:
    with opened(runner, least=0, most=0, lease_seconds=0, reap=False) as pool:
        with pool.fresh() as sandbox:
            assert fake(sandbox).alive
        assert not fake(sandbox).alive
        assert (pool.counts.hits, pool.counts.misses) == (0, 1)
        assert not [one for one in threading.enumerate() if one.name.startswith("sandboxes")]


def test_a_user_comes_back_to_what_is_loaded(runner: Runner) -> None:
    with opened(runner) as pool:
        first = use(pool, "ada")
        with pool.lease("ada") as lease:
            assert fake(lease) is first
            assert lease.tree == {"a.py": "hash"}
        assert pool.counts.resident == 1


def test_sandbox_never_serves_two_users(runner: Runner) -> None:
    with opened(runner) as pool, ThreadPoolExecutor(8) as threads:
        users = [f"user-{n % 5}" for n in range(400)]
        list(threads.map(lambda user: use(pool, user), users))
        assert all(len(one.users) <= 1 for one in runner.started)


def test_a_fresh_one_is_asked_for_although_one_is_kept(runner: Runner) -> None:
    with opened(runner) as pool:
        first = use(pool, "ada")
        second = use(pool, "ada", fresh=True)
        assert second is not first
        # The newer one replaces the older one.
        assert eventually(lambda: not first.alive)
        assert use(pool, "ada") is second


def test_sandbox_that_loaded_nothing_is_not_kept(runner: Runner) -> None:
    with opened(runner) as pool:
        one = use(pool, "ada", keep=False)
        assert eventually(lambda: not one.alive)
        assert pool.size["leases"] == 0


def test_an_idle_lease_ends(runner: Runner) -> None:
    with opened(runner, lease_seconds=0.05) as pool:
        one = use(pool, "ada")
        assert eventually(lambda: not one.alive)
        assert pool.size["leases"] == 0
        assert pool.counts.destroyed["idle"] == 1


def test_only_so_many_leases_are_kept(runner: Runner) -> None:
    with opened(runner) as pool:
        first, *others = (use(pool, f"user-{n}") for n in range(4))
        assert eventually(lambda: not first.alive)
        assert all(one.alive for one in others)
        assert pool.size["leases"] == 3


def test_sandbox_with_stopped_code_is_not_kept(runner: Runner) -> None:
    with opened(runner) as pool:
        with pool.lease("ada") as lease:
            lease.tree = {"a.py": "hash"}
            fake(lease).spent = True
        assert eventually(lambda: not fake(lease).alive)
        assert pool.counts.destroyed == {"stopped": 1}


def test_dead_sandbox_is_not_given_out(runner: Runner) -> None:
    with opened(runner) as pool:
        pool.warm()
        assert eventually(lambda: pool.size["fresh"] == 2)
        resident = use(pool, "ada")
        for one in runner.started:
            one.alive = False

        assert use(pool, "ada") is not resident
        assert pool.counts.destroyed["ended"] >= 2


@pytest.mark.parametrize(
    ("error", "kept"), [(SandboxError("user_error", "1 / 0"), True), (KeyboardInterrupt(), False)]
)
def test_only_sound_sandboxes_are_kept(runner: Runner, error: BaseException, kept: bool) -> None:
    with opened(runner) as pool:
        context = pool.lease("ada")
        lease = context.__enter__()
        lease.tree = {"a.py": "hash"}
        with contextlib.suppress(type(error)):
            assert not context.__exit__(type(error), error, None)
        assert pool.size["leases"] == kept
        assert eventually(lambda: fake(lease).alive is kept)


def test_old_sandbox_is_replaced(runner: Runner) -> None:
    with opened(runner, recycle_seconds=0.05) as pool:
        pool.warm()
        assert eventually(lambda: pool.size["fresh"] == 2)
        first = list(runner.started)
        assert eventually(lambda: not any(one.alive for one in first[:2]))
        assert pool.counts.destroyed["recycled"] >= 2


def test_stock_grows_with_claims(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pool_stock, "HORIZON_SECONDS", 60.0
    )  # so that the arrivals stay recent ones
    monkeypatch.setattr(pool_stock, "MEMORY_SECONDS", 60.0)
    with opened(runner) as pool:
        for _ in range(20):
            with pool.fresh():
                pass
        assert eventually(lambda: pool.size["fresh"] == 4)
        assert eventually(lambda: pool.settled)
        time.sleep(0.05)
        assert pool.size["fresh"] == 4


def test_fewer_are_kept_when_fewer_arrive(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given so many arrivals in a minute that four are kept for all of it
    monkeypatch.setattr(pool_stock, "MEMORY_SECONDS", 60.0)
    monkeypatch.setattr(pool_stock, "HORIZON_SECONDS", 0.2)
    with opened(runner) as pool:
        for _ in range(pool_stock.ARRIVALS):
            with pool.fresh():
                pass
        assert eventually(lambda: pool.size["fresh"] == 4)
        # When that is long ago
        monkeypatch.setattr(pool_stock, "MEMORY_SECONDS", 0.5)
        assert eventually(lambda: pool.size["fresh"] == 2)
        assert pool.counts.destroyed["too many"] >= 2


def test_each_hash_seed_has_its_own(runner: Runner) -> None:
    with opened(runner) as pool:
        with pool.fresh(hash_seed=1) as sandbox:
            assert fake(sandbox).hash_seed == 1
        assert eventually(lambda: sum(one.hash_seed == 1 for one in runner.alive) == 1)
        with pool.fresh() as sandbox:
            assert fake(sandbox).hash_seed == 0


LARGE = Shape(memory_mib=4096)


def test_each_shape_has_its_own(runner: Runner) -> None:
    def counts() -> tuple[int, int]:
        shapes = [one.shape for one in runner.alive]
        return shapes.count(LARGE), shapes.count(DEFAULT_SHAPE)

    with opened(runner) as pool:
        pool.warm()
        with pool.fresh(shape=LARGE) as sandbox:
            assert fake(sandbox).shape == LARGE
        assert eventually(lambda: pool.settled and counts() == (1, 2))

        with pool.fresh(shape=LARGE) as sandbox:
            assert fake(sandbox).shape == LARGE
        with pool.fresh() as sandbox:
            assert fake(sandbox).shape == DEFAULT_SHAPE
        assert pool.counts.hits == 2


def test_unused_shape_is_forgotten(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_stock, "HORIZON_SECONDS", 0.1)
    with opened(runner) as pool:
        pool.warm()
        with pool.fresh(shape=LARGE):
            pass
        assert eventually(lambda: pool.settled)
        assert any(one.shape == LARGE for one in runner.alive)
        monkeypatch.setattr(pool_stock, "FORGET_SECONDS", 0.0)
        assert eventually(lambda: not any(one.shape == LARGE for one in runner.alive))
        assert pool.counts.destroyed["forgotten"] == 1
        assert eventually(lambda: [one.shape for one in runner.alive] == [DEFAULT_SHAPE] * 2)


def test_with_single_use_nothing_is_used_twice_and_others_keep_theirs(runner: Runner) -> None:
    with opened(runner) as pool:
        kept, of_bob = use(pool, "ada"), use(pool, "bob")
        for fresh in (False, True):
            one = use(pool, "ada", single_use=True, fresh=fresh)
            assert one is not kept
            assert eventually(lambda one=one: not one.alive)  # type: ignore[misc]
        assert eventually(lambda: not kept.alive)  # although it was kept before the change
        assert pool.size["leases"] == 1
        assert use(pool, "bob") is of_bob


@pytest.mark.parametrize(
    "error",
    [SandboxError("killed", "no engine", infrastructure=True), KeyError("no engine")],
    ids=["foreseen", "unforeseen"],
)
def test_an_engine_that_fails_is_asked_again_and_told_to_who_needs_it(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(pools, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(pools, "REAP_SECONDS", 0.02)
    runner.error = error
    with opened(runner) as pool:
        with pytest.raises(type(error), match="no engine"), pool.fresh():
            pytest.fail("there is none")
        assert eventually(lambda: runner.reaped >= 2)
        runner.error = None
        assert eventually(lambda: pool.size["fresh"] >= 2)
        used = use(pool, "ada", keep=False)
        assert eventually(lambda: not used.alive)


def test_dead_stock_is_replaced(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens when the engine is restarted."""
    monkeypatch.setattr(pool_stock, "HORIZON_SECONDS", 0.02)
    with opened(runner) as pool:
        pool.warm()
        assert eventually(lambda: pool.settled)
        dead = runner.alive
        for one in dead:
            one.alive = False
        assert eventually(lambda: pool.settled and len(runner.alive) == 2)
        with pool.fresh() as sandbox:
            assert fake(sandbox) not in dead
        assert (pool.counts.hits, pool.counts.misses) == (1, 0)
        assert pool.counts.destroyed["ended"] == 2


def test_sandbox_of_another_image_is_not_used(runner: Runner) -> None:
    """It could not read the bytecode that is sent to it."""
    with opened(runner) as pool:
        kept = use(pool, "ada")
        assert eventually(lambda: pool.settled)
        runner.digest = "newer"
        assert use(pool, "ada").image_digest == use(pool, "bob").image_digest == "newer"
        assert eventually(lambda: not kept.alive)
        assert pool.counts.destroyed["replaced"] >= 2


def test_a_lease_gets_no_older_than_anything_else(runner: Runner) -> None:
    with opened(runner, recycle_seconds=0.3) as pool:
        kept = use(pool, "ada")  # for a minute, if it were not for its age
        assert eventually(lambda: not kept.alive)


def test_expired_lease_is_not_given_out(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "_expire", lambda pool, now: None)
    with opened(runner, lease_seconds=0.01) as pool:
        kept = use(pool, "ada")
        time.sleep(0.02)
        assert use(pool, "ada") is not kept


def test_concurrent_starts_are_limited(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    starting, most = 0, 0
    lock, start = threading.Lock(), runner.start

    def slow(**options: Any) -> Sandbox:
        nonlocal starting, most
        with lock:
            starting += 1
            most = max(most, starting)
        time.sleep(0.02)
        with lock:
            starting -= 1
        return start(**options)

    monkeypatch.setattr(runner, "start", slow)
    with opened(runner, lease_seconds=0) as pool:
        with ThreadPoolExecutor(12) as threads:
            list(threads.map(lambda number: use(pool, str(number)), range(36)))
        assert most <= pools.STARTERS + 1  # and the one that fills the store
        assert pool.counts.hits + pool.counts.misses == 36


def test_slow_removal_has_a_bound(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    close = Fake.close

    def slow(self: Fake) -> None:
        time.sleep(0.02)
        close(self)

    monkeypatch.setattr(Fake, "close", slow)
    most = 0
    with opened(runner, lease_seconds=0) as pool:

        def work(number: int) -> None:
            nonlocal most
            use(pool, str(number))
            most = max(most, len(runner.alive))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(200)))
        backlog = pools.CLEANERS * pools.BACKLOG
        assert most <= backlog + pools.CLEANERS + pool.limits.most + 2 * 4 + pools.STARTERS


def test_failing_close_stops_nothing(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    close = Fake.close

    def fail(self: Fake) -> None:
        close(self)
        raise OSError("engine")

    monkeypatch.setattr(Fake, "close", fail)
    with opened(runner) as pool:
        first, second = use(pool, "ada", keep=False), use(pool, "ada", keep=False)
        assert eventually(lambda: not first.alive and not second.alive)


def test_leftovers_are_reaped_repeatedly(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "REAP_SECONDS", 0.01)
    monkeypatch.setattr(pool_stock, "HORIZON_SECONDS", 0.01)
    with opened(runner) as pool:
        pool.warm()
        assert eventually(lambda: runner.reaped >= 3)


def test_a_closed_pool_keeps_nothing_and_still_serves(runner: Runner) -> None:
    with opened(runner) as pool:
        kept = use(pool, "ada")
        with pool.lease("bob") as lease:
            lease.tree = {"a.py": "hash"}
            pool.close()
            assert not kept.alive
            assert fake(lease).alive  # somebody is at work in it
        assert not fake(lease).alive
        with pool.fresh() as sandbox:
            assert fake(sandbox).alive
        assert runner.alive == []


def test_sandboxes_of_a_forgotten_user_are_not_kept(runner: Runner) -> None:
    with opened(runner) as pool:
        kept, other = use(pool, "ada"), use(pool, "bob")
        assert eventually(lambda: pool.forget("ada"))

        assert not kept.alive
        assert other.alive
        with pytest.raises(SandboxError), pool.lease("ada"):
            pass
        assert use(pool, "bob") is other


def test_sandbox_in_use_is_forgotten_after_its_use(runner: Runner) -> None:
    with opened(runner) as pool:
        with pool.lease("ada") as lease:
            lease.tree = {"a.py": "hash"}
            assert not pool.forget("ada")
            assert fake(lease).alive

        assert eventually(lambda: pool.forget("ada"))
        assert not fake(lease).alive
        assert pool.size["leases"] == 0
