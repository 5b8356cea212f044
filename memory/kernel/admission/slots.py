"""Slots for requests that occupy a thread of a web process, so that no caller can take them all."""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager

from django.conf import settings
from django.http import HttpResponseBase

from memory.kernel.admission.refusals import LimitExceeded


class Slots:
    """A limited number of slots; thread-safe.

    A caller (a workspace or a staff member) may acquire another slot if it holds fewer slots than
    `factor` times the number of free slots. So a single caller can take two thirds of the slots
    with a factor of 2, or half of them with a factor of 1, which leaves some for a second and a
    third caller (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
    """

    def __init__(
        self,
        number: int,
        factor: int = 2,
        *,
        limit: str = "",
        detail: str = "",
        retry_seconds: float = 1.0,
    ) -> None:
        """Create `number` free slots; the other arguments describe the refusals by `hold`."""
        self._free = number
        self._factor = factor
        self._refusal = (limit, detail, retry_seconds)
        self._taken = Counter[Hashable]()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, caller: Hashable) -> Iterator[bool]:
        """Acquire a slot if the caller may have one; yield whether it may, then free the slot."""
        with self._lock:
            admitted = self._taken[caller] < self._factor * self._free
            if admitted:
                self._free -= 1
                self._taken[caller] += 1
        try:
            yield admitted
        finally:
            with self._lock:
                self._free += admitted
                self._taken[caller] -= admitted
                if not self._taken[caller]:
                    del self._taken[caller]

    @contextmanager
    def hold(self, caller: Hashable) -> Iterator[None]:
        """Hold a slot while the block runs; raise LimitExceeded if the caller may have none."""
        with self.take(caller) as admitted:
            if not admitted:
                raise LimitExceeded(*self._refusal)
            yield


# Requests that wait: for a result, for events, or for their share of the processor. Those without a
# slot are answered at once, usually with 202.
WAITING = Slots(settings.UAC_WAITING_REQUESTS)
# Responses computed from many records, which hold the interpreter lock: one per workspace.
COMPUTING = Slots(
    2,
    factor=1,
    limit="max_computing",
    detail="This server is already computing as many large responses as it allows. Try again in a"
    " second.",
)
# Downloads of a whole history, which takes minutes to build, and longer to send to a slow reader:
# two per workspace or staff member.
DOWNLOADS = Slots(
    4,
    factor=1,
    limit="max_downloads",
    detail="This server is already creating as many zips and clones as it allows. Try again in ten"
    " seconds.",
    retry_seconds=10.0,
)
# Bodies that the proxy does not buffer (deploy/haproxy.cfg), so that their senders set the pace:
# eight per workspace.
BODIES = Slots(
    12,
    limit="max_bodies",
    detail="Too many large request bodies from this workspace are being read at the same time. Try"
    " again in a second, and send each body without pausing.",
)
# Searches that first index many new entries in memory: one per workspace.
INDEXING = Slots(
    2,
    factor=1,
    limit="max_unindexed",
    detail="Much of this user's log is still being indexed. Try again in 1 s.",
)
# Forms posted to staff pages, which anybody can do without logging in, and slowly.
ADMIN_FORMS = Slots(4, factor=4)


def download(caller: Hashable, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Return the response that `make` builds from a whole history, for a workspace or staff member.

    The slot stays taken until the response is closed, since a slow reader occupies a thread. Raises
    LimitExceeded if no slot is free.
    """
    with ExitStack() as slot:
        slot.enter_context(DOWNLOADS.hold(caller))
        response = make()
        # A response that is never sent is never closed; the finalizer then frees its slot.
        release = weakref.finalize(response, slot.pop_all().close)
        response._resource_closers.append(release)  # type: ignore[attr-defined]
    return response
