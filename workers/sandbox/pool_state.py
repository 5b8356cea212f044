"""A pool's data: its limits, the sandboxes that it hands out, and its counters."""

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
