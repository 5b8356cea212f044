"""The containers that a pool keeps ready: how many of each kind, and when they are dropped."""

import math
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Shape


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """Limits on a pool's size and its sandboxes' age.

    If `lease_seconds` is 0, sandboxes are single-use.
    """

    least: int = 0  # minimum number of fresh sandboxes of the pool's own shape, with hash seed 0
    most: int = 0  # maximum number of fresh sandboxes of each kind
    least_others: int = 0  # minimum number of fresh sandboxes of each other kind in demand
    lease_seconds: float = 0.0
    leases: int = 0
    recycle_seconds: float = 600.0  # maximum age of a sandbox
    reap: bool = False  # remove sandboxes left behind by killed workers

    @property
    def keeps(self) -> bool:
        """True if the pool has work to do even while nobody asks for a sandbox."""
        return bool(self.most or self.lease_seconds or self.reap)


class SandboxSpec(NamedTuple):
    """Properties that have to be known before a sandbox is started."""

    hash_seed: int
    shape: Shape


@dataclass
class Lease:
    """A user's sandbox; `tree` maps the paths of loaded files to their hashes.

    The holder sets `tree` after loading a version; if `tree` is empty, the sandbox is not kept.
    """

    sandbox: Sandbox
    kind: SandboxSpec
    born: float
    tree: Mapping[str, str] = field(default_factory=dict)
    until: float = 0.0
    user: Hashable = None

    @property
    def reusable(self) -> bool:
        """True if the same user may use this sandbox again."""
        return bool(self.tree) and self.sandbox.alive and not self.sandbox.spent


@dataclass
class Counts:
    """A pool's counters since it was opened."""

    hits: int = 0  # claims for which a fresh sandbox was ready
    misses: int = 0  # claims for which the caller had to wait for a sandbox to start
    resident: int = 0  # uses for which the user's kept sandbox was still available
    started: int = 0
    destroyed: dict[str, int] = field(default_factory=dict)  # sandboxes destroyed, by reason


# Keep enough fresh sandboxes for the claims expected within this many seconds, which is many times
# the time it takes to start a sandbox.
HORIZON_SECONDS = 2.0


# Seconds for which a claim counts towards the rate of claims.
MEMORY_SECONDS = 30.0


# Seconds for which fresh sandboxes with a shape other than the pool's own are kept after the last
# claim of such a sandbox.
FORGET_SECONDS = 300.0


# Maximum number of kinds with shapes other than the pool's own for which fresh sandboxes are kept.
OTHER_KINDS = 8


# Number of claims remembered per kind: more than a pool can serve.
ARRIVALS = 1000


# Starting a sandbox takes processor time away from the user just served. So while enough sandboxes
# are ready, no more are started until this many seconds have passed without a claim.
QUIET_SECONDS = 0.3


@dataclass
class Stock:
    """The fresh sandboxes of one kind, and the times of recent claims."""

    ready: deque[Lease] = field(default_factory=deque)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=ARRIVALS))
    asked_at: float = field(default_factory=time.monotonic)


class Stocks(OrderedDict[SandboxSpec, Stock]):
    """The stock of each kind, least recently claimed first; callers hold the pool's lock."""

    def __init__(self, limits: PoolLimits, shape: Shape) -> None:
        """Keep within these limits; `shape` is the shape of the pool's default sandboxes."""
        super().__init__()
        self.limits = limits
        self.shape = shape

    def wanted(self) -> SandboxSpec | None:
        """Return the kind of fresh sandbox to start now, or None."""
        now = time.monotonic()
        busy = any(
            stock.arrivals and now - stock.arrivals[-1] < QUIET_SECONDS for stock in self.values()
        )
        missing = {}
        for kind, stock in self.items():
            target = self.target(kind)
            if len(stock.ready) < (target / 2 if busy else target):
                missing[kind] = target - len(stock.ready)
        return max(missing, key=lambda kind: missing[kind], default=None)

    def target(self, kind: SandboxSpec) -> int:
        """Return how many fresh sandboxes to keep for the expected claims, within the limits."""
        least = self.limits.least if kind == (0, self.shape) else self.limits.least_others
        if kind.hash_seed != 0:  # for the gate's second run with another hash seed, which is rare
            return min(self.limits.most, least)
        arrivals = self[kind].arrivals
        now = time.monotonic()
        while arrivals and now - arrivals[0] > MEMORY_SECONDS:
            arrivals.popleft()
        # React immediately to a burst that has just begun: an average over all remembered claims
        # alone would react too late.
        rate = max(
            sum(now - arrival < seconds for arrival in arrivals) / seconds
            for seconds in (HORIZON_SECONDS, MEMORY_SECONDS)
        )
        return min(self.limits.most, max(least, math.ceil(rate * HORIZON_SECONDS)))

    def forget(self, now: float) -> list[Lease]:
        """Drop the kinds no longer in demand, or in excess of OTHER_KINDS; return their sandboxes.

        Kinds with the pool's own shape are never dropped.
        """
        forgotten: list[Lease] = []
        others = [kind for kind in self if kind.shape != self.shape]
        for kind in others:
            old = now - self[kind].asked_at > FORGET_SECONDS
            if old or kind in others[:-OTHER_KINDS]:
                forgotten += self.pop(kind).ready
        return forgotten
