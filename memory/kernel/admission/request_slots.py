"""Slots for requests that occupy a thread, shared so that no caller can take all of them."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from django.conf import settings


class Places:
    """A limited number of slots for waiting requests; thread-safe.

    A caller (a workspace or a staff member) may acquire another slot if it holds fewer slots than
    `factor` times the number of free slots. So a single caller can take two thirds of the slots
    with a factor of 2, or half of them with a factor of 1, which leaves some for a second and a
    third caller (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
    """

    def __init__(self, number: int, factor: int = 2) -> None:
        """Create `number` slots, all of them free."""
        self._free = number
        self._factor = factor
        self._taken = Counter[Hashable]()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, whose: Hashable) -> Iterator[bool]:
        """Acquire a slot if the caller may have one; yield whether it may, then free the slot."""
        with self._lock:
            admitted = self._taken[whose] < self._factor * self._free
            if admitted:
                self._free -= 1
                self._taken[whose] += 1
        try:
            yield admitted
        finally:
            with self._lock:
                self._free += admitted
                self._taken[whose] -= admitted
                if not self._taken[whose]:
                    del self._taken[whose]


# Slots for requests that wait: for a result, for events, or for their share of the processor.
WAITING = Places(settings.UAC_WAITING_REQUESTS)
