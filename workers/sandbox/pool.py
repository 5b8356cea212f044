"""Sandboxes kept ready, so that nobody waits for one to start.

A pool keeps *virgin* sandboxes: started, connected, and never used. Whoever needs one claims it,
and it serves that one user from then on. After the use it is destroyed, or kept for a short while
as the user's *lease*, with the project resident, in case the user comes back. It is never given to
anybody else. A lease is a cache: nothing relies on one.

Virgins are of different kinds. Those of the shape that is the pool's own are always kept; those of
another, which some workspace has chosen, while somebody asks for them.
"""

import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import structlog

from workers.metrics import sandbox_metrics
from workers.sandbox.interface import DEFAULT_SHAPE, Runner, Sandbox, SandboxError, Shape

logger = structlog.get_logger(__name__)

# Virgins enough for the arrivals of so long, which is what it takes to start one many times over.
HORIZON_SECONDS = 2.0
# How long an arrival counts for the rate of arrivals.
MEMORY_SECONDS = 30.0
# Virgins of a shape that is not the pool's own are kept for so long after they were asked for.
FORGET_SECONDS = 300.0
# Of those kinds, the virgins of so many are kept.
OTHER_KINDS = 8
# So many arrivals are remembered, which is more than can be served.
ARRIVALS = 1000
# To start one takes the processor from whoever was just served; while enough are left, it waits for
# so long without an arrival.
QUIET_SECONDS = 0.3
# So many are started at once for those who wait: more would only make each other slower.
STARTERS = 3
# So many threads destroy what is over. When so many times as much waits for it, whoever is done
# with another one lends a hand: what exists must not grow without end.
CLEANERS = 2
BACKLOG = 4
# An engine that fails is asked again after so long.
RETRY_SECONDS = 1.0
REAP_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """How much a pool keeps. `lease_seconds` of 0 is the strict mode: nothing is used twice."""

    least: int = 0  # virgins of the pool's own shape, with the hash seed 0
    most: int = 0  # virgins of each kind
    least_others: int = 0  # virgins of each further kind that was asked for
    lease_seconds: float = 0.0
    leases: int = 0
    recycle_seconds: float = 600.0  # nothing gets older
    reap: bool = False  # what killed processes left is removed

    @property
    def keeps(self) -> bool:
        """Whether there is anything to do while nobody asks for a sandbox."""
        return bool(self.most or self.lease_seconds or self.reap)


class Kind(NamedTuple):
    """What has to be settled before a sandbox is started."""

    hash_seed: int
    shape: Shape


@dataclass
class Lease:
    """A user's sandbox. `tree` is what is loaded in it: path → hash; empty where nothing is.

    The holder sets it when it has loaded a version; without it, nothing is kept.
    """

    sandbox: Sandbox
    kind: Kind
    born: float
    tree: Mapping[str, str] = field(default_factory=dict)
    until: float = 0.0
    user: Hashable = None

    @property
    def reusable(self) -> bool:
        """Whether somebody of the same user may go on in it."""
        return bool(self.tree) and self.sandbox.alive and not self.sandbox.spent


@dataclass
class Stock:
    """The virgins of one kind, and when somebody asked for one."""

    virgins: deque[Lease] = field(default_factory=deque)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=ARRIVALS))
    asked_at: float = field(default_factory=time.monotonic)


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

    def __init__(self, runner: Runner, limits: PoolLimits, shape: Shape = DEFAULT_SHAPE) -> None:
        """Keep sandboxes of that runner, within the limits; `shape` is the usual one."""
        self.limits = limits
        self.shape = shape
        self.counts = Counts()
        self._runner = runner
        self._stocks: OrderedDict[Kind, Stock] = OrderedDict()  # last asked for, last
        self._leases: OrderedDict[Hashable, Lease] = OrderedDict()
        self._doomed: deque[Lease] = deque()
        self._held = Counter[Hashable]()  # sandboxes of a user that are not destroyed yet
        self._forgotten: set[Hashable] = set()
        self._changed = threading.Condition()
        self._starting = 0  # for those who wait
        self._closed = False
        self._threads: list[threading.Thread] = []

    @contextmanager
    def virgin(self, *, hash_seed: int = 0, shape: Shape | None = None) -> Iterator[Sandbox]:
        """A sandbox that was never used, destroyed afterwards. Raises SandboxError."""
        with sandbox_metrics.CLAIM_SECONDS.time():
            lease = self._claim(Kind(hash_seed, shape or self.shape))
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
        """The user's own sandbox for as long as the context: the one kept, or a virgin.

        `fresh` asks for a virgin in any case. Afterwards it is kept if `Lease.tree` says what is
        loaded, if nothing had to be stopped in it, and if only SandboxErrors came out of the
        context. With `single_use` it is a virgin and not kept, whatever was kept before; one that
        was kept in another shape is not used. Raises SandboxError.
        """
        kind = Kind(0, shape or self.shape)
        with sandbox_metrics.CLAIM_SECONDS.time():
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
        """Have nothing of a user from now on; return whether nothing is left.

        What is kept is destroyed, what is in use when it is given back, and no more is given out.
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
        """Begin to keep virgins, as the first claim does."""
        with self._changed:
            self._stocks.setdefault(Kind(0, self.shape), Stock())
            self._run_threads()

    def close(self) -> None:
        """Destroy all that is kept, and keep nothing from now on; may be called again."""
        with self._changed:
            self._closed = True
            virgins = chain.from_iterable(stock.virgins for stock in self._stocks.values())
            for lease in (*virgins, *self._leases.values()):
                self._doom(lease, "closed")
            self._stocks.clear()
            self._leases.clear()
            self._changed.notify_all()
        # Each removal takes its time: together they end before whoever ends this process loses
        # patience.
        extra = [threading.Thread(target=self._sweep, daemon=True) for _ in range(CLEANERS * 2)]
        for thread in extra:
            thread.start()
        for thread in (*self._threads, *extra):
            thread.join()
        self._threads.clear()  # from now on, who is done with a sandbox destroys it
        self._sweep()

    @property
    def size(self) -> dict[str, int]:
        """How many sandboxes are kept: virgins, and leases that nobody uses at the moment."""
        with self._changed:
            return {
                "virgins": sum(len(stock.virgins) for stock in self._stocks.values()),
                "leases": len(self._leases),
            }

    def census(self) -> dict[tuple[str, str], int]:
        """How many sandboxes there are, by state ("virgin", "idle", "used") and hash seed.

        The hash seed is "" where it does not matter any more.
        """
        with self._changed:
            virgins = Counter[tuple[str, str]]()
            for kind, stock in self._stocks.items():
                virgins["virgin", str(kind.hash_seed)] += len(stock.virgins)
            left = self.counts.started - sum(self.counts.destroyed.values())
            used = left - virgins.total() - len(self._leases)
            return {**virgins, ("idle", ""): len(self._leases), ("used", ""): used}

    @property
    def settled(self) -> bool:
        """Whether as many virgins are there as should be, and nothing waits to be destroyed."""
        with self._changed:
            self._expire(time.monotonic())
            enough = all(
                len(stock.virgins) >= self._target(kind) for kind, stock in self._stocks.items()
            )
            return enough and not self._doomed

    def _resident(
        self,
        user: Hashable,
        kind: Kind,
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
        """Make a virgin the user's."""
        with self._changed:
            if user not in self._forgotten:
                lease.user = user
                self._held[user] += 1
                return lease
        self._destroy(lease, "forgotten")
        raise SandboxError("killed", "nothing of this user is kept any more", infrastructure=True)

    def _claim(self, kind: Kind) -> Lease:
        digest = self._runner.image_digest()
        with self._changed:
            stock = self._stocks.setdefault(kind, Stock())
            self._stocks.move_to_end(kind)
            stock.asked_at = time.monotonic()
            stock.arrivals.append(stock.asked_at)
            self._run_threads()
            lease = self._virgin(kind, digest)
            if len(stock.virgins) < self._target(kind) / 2:  # else the keeper looks soon enough
                self._changed.notify_all()
            while lease is None and self._starting >= STARTERS:
                self._changed.wait(RETRY_SECONDS)
                lease = self._virgin(kind, digest)
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

    def _virgin(self, kind: Kind, digest: str) -> Lease | None:
        """A virgin that is fit for use; those that are not are doomed."""
        stock = self._stocks.get(kind)
        while stock is not None and stock.virgins:
            lease = stock.virgins.popleft()
            if not (reason := _unusable(lease, digest)):
                return lease
            self._doom(lease, reason)
        return None

    def _new(self, kind: Kind) -> Lease:
        before = time.monotonic()
        with sandbox_metrics.START_FAILURES.count_exceptions():
            sandbox = self._runner.start(hash_seed=kind.hash_seed, shape=kind.shape)
        lease = Lease(sandbox, kind, time.monotonic())
        sandbox_metrics.START_SECONDS.observe(lease.born - before)
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
                # Another thread may have given one back meanwhile.
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
        """Have it destroyed: by a cleaner, if there is one, so that nobody waits for that."""
        with self._changed:
            self._doom(lease, reason)
            self._changed.notify_all()
        self._relieve()

    def _relieve(self) -> None:
        """Do what nobody else does, or does not do fast enough."""
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

    # -- The threads, which run only where there is something to keep -----------------------------

    def _run_threads(self) -> None:
        if self._threads or self._closed or not self.limits.keeps:
            return
        for work in (self._keep, self._reap, *[self._clean] * CLEANERS):
            thread = threading.Thread(target=work, name=f"sandboxes{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _keep(self) -> None:
        """Start virgins where there are too few."""
        said = ""
        while True:
            with self._changed:
                while not self._closed and (kind := self._wanted()) is None:
                    self._changed.wait(QUIET_SECONDS)
                if self._closed:
                    return
            assert kind is not None
            try:
                lease = self._new(kind)
            except Exception as error:  # whatever it is, it must not be the last one started
                if str(error) != said:  # once: it may last
                    said = str(error)
                    logger.warning("sandbox_not_started", error=said, exc_info=_unforeseen(error))
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)
                continue
            said = ""
            with self._changed:  # meanwhile the pool may have been closed, or the kind forgotten
                stock = self._stocks.get(kind)
                if stock is None:
                    self._doom(lease, "forgotten")
                else:
                    stock.virgins.append(lease)
                self._changed.notify_all()

    def _reap(self) -> None:
        """Remove now and then what killed processes left behind."""
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

    def _wanted(self) -> Kind | None:
        """A kind of which a virgin is to be started now, None if there is none."""
        if self._is_behind():
            return None
        now = time.monotonic()
        busy = any(
            stock.arrivals and now - stock.arrivals[-1] < QUIET_SECONDS
            for stock in self._stocks.values()
        )
        missing = {}
        for kind, stock in self._stocks.items():
            target = self._target(kind)
            if len(stock.virgins) < (target / 2 if busy else target):
                missing[kind] = target - len(stock.virgins)
        return max(missing, key=lambda kind: missing[kind], default=None)

    def _target(self, kind: Kind) -> int:
        """How many virgins to keep: for the arrivals of the near future, within the bounds."""
        least = self.limits.least if kind == (0, self.shape) else self.limits.least_others
        if kind.hash_seed != 0:  # the gate's second opinion, of which there are few
            return min(self.limits.most, least)
        arrivals = self._stocks[kind].arrivals
        now = time.monotonic()
        while arrivals and now - arrivals[0] > MEMORY_SECONDS:
            arrivals.popleft()
        # Of a burst that has just begun, too: a rate over all of the memory would see it late.
        rate = max(
            sum(now - arrival < seconds for arrival in arrivals) / seconds
            for seconds in (HORIZON_SECONDS, MEMORY_SECONDS)
        )
        return min(self.limits.most, max(least, math.ceil(rate * HORIZON_SECONDS)))

    def _forget(self, now: float) -> None:
        """Keep no more virgins of what is not asked for any more, or of too many kinds."""
        others = [kind for kind in self._stocks if kind.shape != self.shape]
        for kind in others:
            old = now - self._stocks[kind].asked_at > FORGET_SECONDS
            if old or kind in others[:-OTHER_KINDS]:
                for virgin in self._stocks.pop(kind).virgins:
                    self._doom(virgin, "forgotten")

    def _clean(self) -> None:
        """Destroy what is over: used up, idle for too long, too old, too many, or dead."""
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
        """Seconds until a lease ends, or so long that age and numbers are looked at again."""
        now = time.monotonic()
        ends = [lease.until - now for lease in self._leases.values()]
        return max(0.0, min([*ends, HORIZON_SECONDS]))

    def _expire(self, now: float) -> None:
        for user, lease in list(self._leases.items()):
            if now >= lease.until:
                self._doom(self._leases.pop(user), "idle")
        self._forget(now)
        for kind, stock in self._stocks.items():
            for lease in [one for one in stock.virgins if not one.sandbox.alive]:
                stock.virgins.remove(lease)
                self._doom(lease, "ended")
            # One at a time: those that were started together are not to be missing together.
            if stock.virgins and now - stock.virgins[0].born > self.limits.recycle_seconds:
                self._doom(stock.virgins.popleft(), "recycled")
            if len(stock.virgins) > max(self._target(kind), 1):
                self._doom(stock.virgins.popleft(), "too many")


def _unusable(lease: Lease, digest: str) -> str:
    """Why a sandbox is not to be used any more, if there is a reason."""
    if not lease.sandbox.alive:
        return "ended"
    return "" if lease.sandbox.image_digest == digest else "replaced"


def _unforeseen(error: Exception) -> bool:
    return not isinstance(error, SandboxError)
