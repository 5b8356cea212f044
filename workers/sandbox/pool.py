"""A pool of sandboxes that are kept ready, so that no caller waits for one to start.

The pool keeps fresh sandboxes: started, connected, and never used. A caller claims one for a user,
and from then on it serves that user alone. After use it is destroyed, or kept for a short while as
the user's *lease*, with the project resident, in case the user comes back. The sandbox is never
given to another user. A lease is only a cache: nothing relies on its existence.

Fresh sandboxes come in different kinds. Those with the pool's own shape are always kept; those with
another shape, which the overrides of some workspace require, are kept only while there is demand
for them.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

import structlog

from workers.sandbox import metrics, pool_stock
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import DEFAULT_SHAPE, Shape
from workers.sandbox.pool_stock import Counts, Lease, PoolLimits, SandboxSpec, Stock, Stocks
from workers.sandbox.results import SandboxError

logger = structlog.get_logger(__name__)

# Maximum number of sandboxes being started for waiting callers; more would only slow each other
# down.
STARTERS = 3
# Number of threads that destroy sandboxes. If more than BACKLOG sandboxes per thread are waiting to
# be destroyed, every thread that releases a sandbox also destroys one, so that they do not pile up.
CLEANERS = 2
BACKLOG = 4
# Seconds to wait after a failure before using the engine again.
RETRY_SECONDS = 1.0
REAP_SECONDS = 30.0


class Pool:
    """One runner's sandboxes in one process; all methods are thread-safe."""

    def __init__(self, runner: Runner, limits: PoolLimits, shape: Shape = DEFAULT_SHAPE) -> None:
        """Keep this runner's sandboxes, within these limits; `shape` is their default shape."""
        self.limits = limits
        self.shape = shape
        self.counts = Counts()
        self._runner = runner
        self._stocks = Stocks(limits, shape)
        self._leases: OrderedDict[Hashable, Lease] = OrderedDict()
        self._doomed: deque[Lease] = deque()
        self._held = Counter[Hashable]()  # user → number of sandboxes not yet destroyed
        self._forgotten: set[Hashable] = set()
        self._changed = threading.Condition()
        self._starting = 0  # number of sandboxes being started for waiting callers
        self._closed = False
        self._threads: list[threading.Thread] = []

    @contextmanager
    def fresh(self, *, hash_seed: int = 0, shape: Shape | None = None) -> Iterator[Sandbox]:
        """Yield a fresh sandbox, which is destroyed afterwards.

        Raises SandboxError if none can be started.
        """
        with metrics.CLAIM_SECONDS.time():
            lease = self._claim(SandboxSpec(hash_seed, shape or self.shape))
        try:
            yield lease.sandbox
        finally:
            self._destroy(lease, "used")

    @contextmanager
    def lease(
        self,
        user: Hashable,
        *,
        shape: Shape | None = None,
        single_use: bool = False,
        fresh: bool = False,
        suits: Callable[[Mapping[str, str]], bool] = bool,
    ) -> Iterator[Lease]:
        """Yield a sandbox for the user: the one kept for them, or a fresh one (always if `fresh`).

        A kept sandbox is used only if it has this shape and `suits` accepts its `tree`. Afterwards
        the sandbox is kept if `Lease.tree` lists what it has loaded, no code had to be stopped in
        it, and no exception other than SandboxError left the context. If `single_use` is set, the
        sandbox is fresh and is not kept, and any sandbox already kept for the user is destroyed.
        Raises SandboxError if none can be started.
        """
        kind = SandboxSpec(0, shape or self.shape)
        with metrics.CLAIM_SECONDS.time():
            kept = None
            if single_use or not fresh:
                kept = self._resident(user, kind, single_use, suits)
            lease = kept or self._give(user, self._claim(kind))
        try:
            yield lease
        except SandboxError:
            self._give_back(user, lease, single_use)
            raise
        except BaseException:
            self._destroy(lease, "error")
            raise
        self._give_back(user, lease, single_use)

    def forget(self, user: Hashable) -> bool:
        """Destroy all of this user's sandboxes; return whether they are all gone already.

        A kept sandbox is destroyed immediately, and one in use as soon as it is released. The user
        gets no more sandboxes.
        """
        with self._changed:
            self._forgotten.add(user)
            if (lease := self._leases.pop(user, None)) is not None:
                self._doom(lease, "forgotten")
                self._changed.notify_all()
        self._relieve()
        with self._changed:
            return user not in self._held

    def warm(self) -> None:
        """Start keeping fresh sandboxes, without waiting for the first claim."""
        with self._changed:
            self._stocks.setdefault(SandboxSpec(0, self.shape), Stock())
            self._run_threads()

    def close(self) -> None:
        """Destroy all kept sandboxes, and keep none from now on; may be called more than once."""
        with self._changed:
            self._closed = True
            ready = chain.from_iterable(stock.ready for stock in self._stocks.values())
            for lease in (*ready, *self._leases.values()):
                self._doom(lease, "closed")
            self._stocks.clear()
            self._leases.clear()
            self._changed.notify_all()
        # Removing a sandbox takes time. Remove them in parallel, to finish before this process is
        # killed.
        extra = [threading.Thread(target=self._sweep, daemon=True) for _ in range(CLEANERS * 2)]
        for thread in extra:
            thread.start()
        for thread in (*self._threads, *extra):
            thread.join()
        self._threads.clear()  # from now on, each thread destroys its own sandboxes
        self._sweep()

    @property
    def size(self) -> dict[str, int]:
        """Return how many sandboxes are kept: fresh ones, and leases that are not in use."""
        with self._changed:
            return {
                "fresh": sum(len(stock.ready) for stock in self._stocks.values()),
                "leases": len(self._leases),
            }

    def census(self) -> dict[tuple[str, str], int]:
        """Return the number of sandboxes by state ("fresh", "idle" or "used") and hash seed.

        The hash seed is given as "" for idle and used sandboxes, for which it no longer matters.
        """
        with self._changed:
            ready = Counter[tuple[str, str]]()
            for kind, stock in self._stocks.items():
                ready["fresh", str(kind.hash_seed)] += len(stock.ready)
            left = self.counts.started - sum(self.counts.destroyed.values())
            used = left - ready.total() - len(self._leases)
            return {**ready, ("idle", ""): len(self._leases), ("used", ""): used}

    @property
    def settled(self) -> bool:
        """Return whether enough fresh sandboxes are ready and none are waiting to be destroyed."""
        with self._changed:
            self._expire(time.monotonic())
            enough = all(
                len(stock.ready) >= self._stocks.target(kind)
                for kind, stock in self._stocks.items()
            )
            return enough and not self._doomed

    def _resident(
        self,
        user: Hashable,
        kind: SandboxSpec,
        single_use: bool,
        suits: Callable[[Mapping[str, str]], bool],
    ) -> Lease | None:
        digest = self._runner.image_digest()
        with self._changed:
            lease = self._leases.pop(user, None)
        if lease is None:
            return None
        if single_use or lease.kind != kind:
            self._destroy(lease, "changed")
            return None
        if time.monotonic() >= lease.until:
            self._destroy(lease, "idle")
            return None
        if reason := _unusable(lease, digest) or ("" if lease.reusable else "ended"):
            self._destroy(lease, reason)
            return None
        if not suits(lease.tree):
            self._destroy(lease, "other code")
            return None
        with self._changed:
            self.counts.resident += 1
        return lease

    def _give(self, user: Hashable, lease: Lease) -> Lease:
        with self._changed:
            if user not in self._forgotten:
                lease.user = user
                self._held[user] += 1
                return lease
        self._destroy(lease, "forgotten")
        raise SandboxError.unavailable("the user's sandboxes have been discarded in the meantime")

    def _claim(self, kind: SandboxSpec) -> Lease:
        digest = self._runner.image_digest()
        with self._changed:
            stock = self._stocks.setdefault(kind, Stock())
            self._stocks.move_to_end(kind)
            stock.asked_at = time.monotonic()
            stock.arrivals.append(stock.asked_at)
            self._run_threads()
            lease = self._fresh(kind, digest)
            if len(stock.ready) < self._stocks.target(kind) / 2:  # wake the keeper thread now
                self._changed.notify_all()
            while lease is None and self._starting >= STARTERS:
                self._changed.wait(RETRY_SECONDS)
                lease = self._fresh(kind, digest)
            if lease is not None:
                self.counts.hits += 1
                return lease
            self.counts.misses += 1
            self._starting += 1
        try:
            return self._new(kind)
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _fresh(self, kind: SandboxSpec, digest: str) -> Lease | None:
        """Return a usable fresh sandbox, or None; mark unusable ones to be destroyed."""
        stock = self._stocks.get(kind)
        while stock is not None and stock.ready:
            lease = stock.ready.popleft()
            if not (reason := _unusable(lease, digest)):
                return lease
            self._doom(lease, reason)
        return None

    def _new(self, kind: SandboxSpec) -> Lease:
        before = time.monotonic()
        with metrics.START_FAILURES.count_exceptions():
            sandbox = self._runner.start(hash_seed=kind.hash_seed, shape=kind.shape)
        lease = Lease(sandbox, kind, time.monotonic())
        metrics.START_SECONDS.observe(lease.born - before)
        with self._changed:
            self.counts.started += 1
        return lease

    def _give_back(self, user: Hashable, lease: Lease, single_use: bool) -> None:
        now = time.monotonic()
        if single_use or not self.limits.lease_seconds:
            return self._destroy(lease, "used")
        if not lease.reusable:
            return self._destroy(lease, "stopped" if lease.sandbox.spent else "ended")
        lease.until = min(now + self.limits.lease_seconds, lease.born + self.limits.recycle_seconds)
        if now >= lease.until:
            return self._destroy(lease, "recycled")
        with self._changed:
            if self._closed or user in self._forgotten:
                self._doom(lease, "closed" if self._closed else "forgotten")
            else:
                # Another thread may have released a sandbox of this user in the meantime.
                if (other := self._leases.pop(user, None)) is not None:
                    self._doom(other, "doubled")
                self._leases[user] = lease
                while len(self._leases) > self.limits.leases:
                    self._doom(self._leases.popitem(last=False)[1], "crowded")
            self._run_threads()
            self._changed.notify_all()
        self._relieve()
        return None

    def _destroy(self, lease: Lease, reason: str) -> None:
        """Have a sandbox destroyed, if possible by a cleaner thread so that no caller waits."""
        with self._changed:
            self._doom(lease, reason)
            self._changed.notify_all()
        self._relieve()

    def _relieve(self) -> None:
        """Destroy sandboxes in this thread if there is no cleaner, or the cleaners fall behind."""
        if not self._threads:
            self._sweep()
        elif self._is_behind():
            self._sweep_one()

    def _is_behind(self) -> bool:
        return len(self._doomed) > CLEANERS * BACKLOG

    def _doom(self, lease: Lease, reason: str) -> None:
        self.counts.destroyed[reason] = self.counts.destroyed.get(reason, 0) + 1
        self._doomed.append(lease)

    def _sweep(self) -> None:
        while self._sweep_one():
            pass

    def _sweep_one(self) -> bool:
        try:
            lease = self._doomed.popleft()
        except IndexError:
            return False
        try:
            lease.sandbox.close()
        except Exception:
            logger.exception("sandbox_not_closed")
        if lease.user is not None:
            with self._changed:
                self._held[lease.user] -= 1
                if not self._held[lease.user]:
                    del self._held[lease.user]
        return True

    # -- The threads, which run only if there is something to keep --------------------------------

    def _run_threads(self) -> None:
        if self._threads or self._closed or not self.limits.keeps:
            return
        for work in (self._keep, self._reap, *[self._clean] * CLEANERS):
            thread = threading.Thread(target=work, name=f"sandboxes{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _keep(self) -> None:
        """Start fresh sandboxes while there are too few."""
        last_error = ""
        while True:
            with self._changed:
                while not self._closed and (kind := self._wanted()) is None:
                    self._changed.wait(pool_stock.QUIET_SECONDS)
                if self._closed:
                    return
            assert kind is not None
            try:
                lease = self._new(kind)
            except Exception as error:  # any error: this thread must keep running
                if str(error) != last_error:  # log the same error only once, since it may persist
                    last_error = str(error)
                    logger.warning(
                        "sandbox_not_started", error=last_error, exc_info=_unforeseen(error)
                    )
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)
                continue
            last_error = ""
            with self._changed:  # since then, the pool may have been closed or the kind dropped
                stock = self._stocks.get(kind)
                if stock is None:
                    self._doom(lease, "forgotten")
                else:
                    stock.ready.append(lease)
                self._changed.notify_all()

    def _reap(self) -> None:
        """Periodically remove sandboxes left behind by killed workers."""
        while True:
            try:
                self._runner.reap()
            except Exception as error:
                logger.warning(
                    "sandboxes_not_reaped", error=str(error), exc_info=_unforeseen(error)
                )
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, REAP_SECONDS):
                    return

    def _wanted(self) -> SandboxSpec | None:
        return None if self._is_behind() else self._stocks.wanted()

    def _clean(self) -> None:
        """Destroy sandboxes that are used up, idle for too long, too old, superfluous, or dead."""
        while True:
            with self._changed:
                self._expire(time.monotonic())
                if not self._doomed and not self._closed:
                    self._changed.wait(self._until_next())
                closed = self._closed
            self._sweep()
            if closed:
                return

    def _until_next(self) -> float:
        """Return the seconds until the next lease expires, or the next check of ages and counts."""
        now = time.monotonic()
        ends = [lease.until - now for lease in self._leases.values()]
        return max(0.0, min([*ends, pool_stock.HORIZON_SECONDS]))

    def _expire(self, now: float) -> None:
        for user, lease in list(self._leases.items()):
            if now >= lease.until:
                self._doom(self._leases.pop(user), "idle")
        for lease in self._stocks.forget(now):
            self._doom(lease, "forgotten")
        for kind, stock in self._stocks.items():
            for lease in [one for one in stock.ready if not one.sandbox.alive]:
                stock.ready.remove(lease)
                self._doom(lease, "ended")
            # Recycle one at a time: sandboxes that were started together must not all be
            # unavailable at the same time.
            if stock.ready and now - stock.ready[0].born > self.limits.recycle_seconds:
                self._doom(stock.ready.popleft(), "recycled")
            if len(stock.ready) > max(self._stocks.target(kind), 1):
                self._doom(stock.ready.popleft(), "too many")


def _unusable(lease: Lease, digest: str) -> str:
    """Return why a sandbox must no longer be used; "" if it may be used."""
    if not lease.sandbox.alive:
        return "ended"
    return "" if lease.sandbox.image_digest == digest else "replaced"


def _unforeseen(error: Exception) -> bool:
    return not isinstance(error, SandboxError)
