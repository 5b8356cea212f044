"""The share of processor time that each workspace's requests get in this web process.

A process's threads take turns on the CPU. Without shares, a workspace that makes many requests, or
expensive ones, gets most of the turns, and everyone else's requests take several times as long.
While a workspace is the only active one, it may use all of the processor time.
"""

import math
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass

from memory.kernel.admission import slots
from memory.kernel.admission.refusals import refuse
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment

# The name of the limit, which is also the name of a workspace's field.
PROCESSOR = "processor_percent"
# A workspace that has used little may use this many seconds of processor time in one burst.
BURST_SECONDS = 0.5
# A request waits for at most this many seconds; if it would have to wait longer, it is rejected.
MAX_WAIT_SECONDS = 2.0
# However much processor time a workspace has used, its requests are admitted again after this many
# seconds.
MAX_DEBT_SECONDS = 20.0
# A workspace counts as active for this many seconds after the start and end of each request.
ACTIVE_SECONDS = 2.0
# A workspace's usage is discarded this many seconds after the workspace was last active.
REMEMBERED_SECONDS = 60.0


@dataclass(slots=True)
class _Usage:
    """The times at which a workspace stops being active and at which its usage is paid off."""

    active_until: float
    paid_at: float


class ProcessorShares:
    """The processor time that workspaces have used recently; thread-safe.

    With a share of one fifth, a second of processor time takes five seconds to pay off.
    """

    def __init__(self) -> None:
        """Start with no active workspaces."""
        self._usage: dict[Hashable, _Usage] = {}
        self._lock = threading.Lock()

    def admit(self, workspace: Hashable, share: float) -> float:
        """Wait until the workspace's next request may start, and return 0.

        With a share of 1, requests may always start. If the wait would be too long, or too many
        requests are already waiting, immediately return the number of seconds after which to try
        again.
        """
        with self._lock:
            now = time.monotonic()
            wait = self._activate(workspace, now).paid_at - now
            if wait <= 0 or share >= 1 or not self._has_others(workspace, now):
                return 0.0
        if wait > MAX_WAIT_SECONDS:
            return wait
        with slots.WAITING.take(workspace) as admitted:
            if not admitted:
                return wait
            time.sleep(wait)
        return 0.0

    def charge(self, workspace: Hashable, seconds: float, share: float) -> None:
        """Charge the workspace for a request's processor time if any other workspace is active."""
        with self._lock:
            now = time.monotonic()
            usage = self._activate(workspace, now)
            if self._has_others(workspace, now):
                earliest = now - BURST_SECONDS / share
                paid_at = max(usage.paid_at, earliest) + seconds / share
                usage.paid_at = min(paid_at, now + MAX_DEBT_SECONDS)

    def _activate(self, workspace: Hashable, now: float) -> _Usage:
        usage = self._usage.setdefault(workspace, _Usage(now, -math.inf))
        usage.active_until = now + ACTIVE_SECONDS
        return usage

    def _has_others(self, workspace: Hashable, now: float) -> bool:
        """Return whether other workspaces are active; discard those that are long inactive."""
        long_ago = now - REMEMBERED_SECONDS
        for other in [pk for pk, usage in self._usage.items() if usage.active_until < long_ago]:
            del self._usage[other]
        return any(
            usage.active_until > now for other, usage in self._usage.items() if other != workspace
        )


_shares = ProcessorShares()


def admit(workspace: Workspace) -> float:
    """Wait until a request may start, and return the workspace's share, to be passed to `charge`.

    Raises LimitExceeded if the wait would be too long.
    """
    share = float(workspace.effective(environment.QUOTAS)[PROCESSOR]) / 100
    if wait := math.ceil(_shares.admit(workspace.pk, share)):
        refuse(
            workspace,
            PROCESSOR,
            "This workspace's requests have used more than its share of processor time while other"
            f" workspaces need it ({PROCESSOR}). Try again in {wait} s.",
            wait,
        )
    return share


def charge(workspace_pk: int, seconds: float, share: float) -> None:
    """Charge a workspace for the processor time of a request that was admitted."""
    _shares.charge(workspace_pk, seconds, share)
