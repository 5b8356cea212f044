"""Sandboxes kept ready, so that nobody waits for one to start.

A pool keeps *virgin* sandboxes: started, connected, and never used. Whoever needs one claims it,
and it serves that one user from then on. After the use it is destroyed, or kept for a short while
as the user's *lease*, with the project resident, in case the user comes back. It is never given to
anybody else. A lease is a cache: nothing relies on one.
"""

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from workers.sandbox.interface import Runner, Sandbox, SandboxError

logger = structlog.get_logger(__name__)

# Virgins enough for the arrivals of so long, which is what it takes to start one many times over.
HORIZON_SECONDS = 2.0
# How long an arrival counts for the rate of arrivals.
MEMORY_SECONDS = 30.0
# To start one takes the processor from whoever was just served; while enough are left, it waits for
# so long without an arrival.
QUIET_SECONDS = 0.3
# An engine that fails is asked again after so long.
RETRY_SECONDS = 1.0
REAP_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """How much a pool keeps. `lease_seconds` of 0 is the strict mode: nothing is used twice."""

    least: int = 0  # virgins with the hash seed 0
    most: int = 0
    least_others: int = 0  # virgins with each further hash seed that was ever asked for
    lease_seconds: float = 0.0
    leases: int = 0
    recycle_seconds: float = 600.0  # nothing gets older


@dataclass
class Lease:
    """A user's sandbox. `tree` is what is loaded in it: path → hash; empty where nothing is.

    The holder sets it when it has loaded a version; without it, nothing is kept.
    """

    sandbox: Sandbox
    born: float
    tree: Mapping[str, str] = field(default_factory=dict)
    until: float = 0.0

    @property
    def reusable(self) -> bool:
        """Whether somebody of the same user may go on in it."""
        return bool(self.tree) and self.sandbox.alive and not self.sandbox.spent


@dataclass
class Counts:
    """What happened in a pool since it was opened."""

    hits: int = 0  # a virgin was there
    misses: int = 0  # one had to be started while somebody waited
    resident: int = 0  # the user's own sandbox was there
    started: int = 0
    destroyed: dict[str, int] = field(default_factory=dict)  # by reason


class Pool:
    """The sandboxes of one runner in one process; any thread may call any method."""

    def __init__(self, runner: Runner, limits: PoolLimits) -> None:
        self.limits = limits
        self.counts = Counts()
        self._runner = runner
        self._virgins: dict[int, deque[Lease]] = {}
        self._leases: OrderedDict[Hashable, Lease] = OrderedDict()
        self._doomed: deque[Lease] = deque()
        self._arrivals: deque[float] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads: list[threading.Thread] = []

    @contextmanager
    def virgin(self, *, hash_seed: int = 0) -> Iterator[Sandbox]:
        """A sandbox that was never used, destroyed afterwards. Raises SandboxError."""
        lease = self._claim(hash_seed)
        try:
            yield lease.sandbox
        finally:
            self._destroy(lease, "used")

    @contextmanager
    def lease(self, user: Hashable, *, fresh: bool = False) -> Iterator[Lease]:
        """The user's own sandbox for as long as the context: the one kept, or a virgin.

        `fresh` asks for a virgin in any case. Afterwards it is kept if `Lease.tree` says what is
        loaded, if nothing had to be stopped in it, and if only SandboxErrors came out of the
        context. Raises SandboxError.
        """
        lease = (None if fresh else self._resident(user)) or self._claim(0)
        try:
            yield lease
        except SandboxError:
            self._give_back(user, lease)
            raise
        except BaseException:
            self._destroy(lease, "error")
            raise
        self._give_back(user, lease)

    def warm(self) -> None:
        """Begin to keep virgins, as the first claim does."""
        with self._changed:
            self._virgins.setdefault(0, deque())
            self._run_threads()

    def close(self) -> None:
        """Destroy all that is kept, and keep nothing from now on; may be called again."""
        with self._changed:
            self._closed = True
            for kept in (*self._virgins.values(), deque(self._leases.values())):
                self._doomed.extend(kept)
            self._virgins.clear()
            self._leases.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()  # from now on, who is done with a sandbox destroys it
        self._sweep()

    @property
    def size(self) -> dict[str, int]:
        """How many sandboxes are kept: virgins, and leases that nobody uses at the moment."""
        with self._changed:
            return {
                "virgins": sum(map(len, self._virgins.values())),
                "leases": len(self._leases),
            }

    @property
    def settled(self) -> bool:
        """Whether as many virgins are there as should be, and nothing waits to be destroyed."""
        with self._changed:
            self._expire(time.monotonic())
            enough = all(len(kept) >= self._target(seed) for seed, kept in self._virgins.items())
            return enough and not self._doomed

    def _resident(self, user: Hashable) -> Lease | None:
        with self._changed:
            lease = self._leases.pop(user, None)
        if lease is None:
            return None
        if not lease.reusable:
            self._destroy(lease, "ended")
            return None
        self.counts.resident += 1
        return lease

    def _claim(self, hash_seed: int) -> Lease:
        while True:
            with self._changed:
                self._arrivals.append(time.monotonic())
                virgins = self._virgins.setdefault(hash_seed, deque())
                self._run_threads()
                lease = virgins.popleft() if virgins else None
                self._changed.notify_all()
            if lease is None:
                self.counts.misses += 1
                return self._new(hash_seed)
            if lease.sandbox.alive:
                self.counts.hits += 1
                return lease
            self._destroy(lease, "ended")

    def _new(self, hash_seed: int) -> Lease:
        lease = Lease(self._runner.start(hash_seed=hash_seed), time.monotonic())
        self.counts.started += 1
        return lease

    def _give_back(self, user: Hashable, lease: Lease) -> None:
        now = time.monotonic()
        if not self.limits.lease_seconds:
            return self._destroy(lease, "used")
        if not lease.reusable:
            return self._destroy(lease, "stopped" if lease.sandbox.spent else "ended")
        if now - lease.born > self.limits.recycle_seconds:
            return self._destroy(lease, "recycled")
        lease.until = now + self.limits.lease_seconds
        with self._changed:
            if self._closed:
                self._doom(lease, "closed")
            else:
                # Another thread may have given one back meanwhile: the newer version stays.
                if (other := self._leases.pop(user, None)) is not None:
                    self._doom(other, "doubled")
                self._leases[user] = lease
                while len(self._leases) > self.limits.leases:
                    self._doom(self._leases.popitem(last=False)[1], "crowded")
            self._run_threads()
            self._changed.notify_all()
        if not self._threads:
            self._sweep()
        return None

    def _destroy(self, lease: Lease, reason: str) -> None:
        """Have it destroyed: by the sweeper, if there is one, so that nobody waits for that."""
        with self._changed:
            self._doom(lease, reason)
            self._changed.notify_all()
        if not self._threads:
            self._sweep()

    def _doom(self, lease: Lease, reason: str) -> None:
        self.counts.destroyed[reason] = self.counts.destroyed.get(reason, 0) + 1
        self._doomed.append(lease)

    def _sweep(self) -> None:
        while True:
            try:
                lease = self._doomed.popleft()
            except IndexError:
                return
            try:
                lease.sandbox.close()
            except Exception:
                logger.exception("sandbox_not_closed")

    # -- The two threads, which run only where there is something to keep -------------------------

    def _run_threads(self) -> None:
        if self._threads or self._closed or not (self.limits.most or self.limits.lease_seconds):
            return
        for work in (self._keep, self._clean):
            thread = threading.Thread(target=work, name=f"sandboxes{work.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _keep(self) -> None:
        """Start virgins where there are too few."""
        while True:
            with self._changed:
                while not self._closed and (seed := self._wanted()) is None:
                    self._changed.wait(QUIET_SECONDS)
                if self._closed:
                    return
            assert seed is not None
            try:
                lease = self._new(seed)
            except SandboxError as error:
                logger.warning("sandbox_not_started", error=error.message)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)
                continue
            with self._changed:  # `close` may have come meanwhile, and forgotten the virgins
                (self._doomed if self._closed else self._virgins[seed]).append(lease)

    def _wanted(self) -> int | None:
        """A hash seed of which a virgin is to be started now, None if there is none."""
        busy = self._arrivals and time.monotonic() - self._arrivals[-1] < QUIET_SECONDS
        for seed, virgins in sorted(self._virgins.items()):
            target = self._target(seed)
            if len(virgins) < (target / 2 if busy else target):
                return seed
        return None

    def _target(self, hash_seed: int) -> int:
        """How many virgins to keep: for the arrivals of the near future, within the bounds."""
        if hash_seed != 0:
            return min(self.limits.least_others, self.limits.most)
        now = time.monotonic()
        while self._arrivals and now - self._arrivals[0] > MEMORY_SECONDS:
            self._arrivals.popleft()
        # Of a burst that has just begun, too: a rate over all of the memory would see it late.
        rate = max(
            sum(now - arrival < seconds for arrival in self._arrivals) / seconds
            for seconds in (HORIZON_SECONDS, MEMORY_SECONDS)
        )
        return min(self.limits.most, max(self.limits.least, math.ceil(rate * HORIZON_SECONDS)))

    def _clean(self) -> None:
        """Destroy what is over: used up, idle for too long, too old, too many."""
        reap_at = time.monotonic()
        while True:
            with self._changed:
                self._expire(time.monotonic())
                if not self._doomed and not self._closed:
                    self._changed.wait(self._until_next())
                closed = self._closed
            self._sweep()
            if closed:
                return
            if time.monotonic() >= reap_at:
                reap_at = time.monotonic() + REAP_SECONDS
                try:
                    self._runner.reap()
                except SandboxError as error:
                    logger.warning("sandboxes_not_reaped", error=error.message)

    def _until_next(self) -> float:
        """Seconds until a lease ends, or so long that age and numbers are looked at again."""
        now = time.monotonic()
        ends = [lease.until - now for lease in self._leases.values()]
        return max(0.0, min([*ends, HORIZON_SECONDS]))

    def _expire(self, now: float) -> None:
        for user, lease in list(self._leases.items()):
            if now >= lease.until:
                self._doom(self._leases.pop(user), "idle")
        for seed, virgins in self._virgins.items():
            while virgins and now - virgins[0].born > self.limits.recycle_seconds:
                self._doom(virgins.popleft(), "recycled")
            while len(virgins) > max(self._target(seed), 1):
                self._doom(virgins.popleft(), "too many")
