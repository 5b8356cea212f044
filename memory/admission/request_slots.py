"""Slots for requests that occupy a thread, shared so that no caller can take all of them."""

import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Places:
    """A limited number of slots for waiting requests; thread-safe.

    A caller (a workspace, or a member of the staff) may take another slot if it holds fewer slots
    than `factor` times the number of free slots. A single caller can thus take two thirds of all
    slots with a factor of 2, or half of them with a factor of 1, so that some remain for a second
    and a third caller (Choudhury and Hahne, "Dynamic queue length thresholds", 1998).
    """

    def __init__(self, number: int, factor: int = 2) -> None:
        """Create `number` slots, all of them free."""
        self._free = number
        self._factor = factor
        self._taken = Counter[Hashable]()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, whose: Hashable) -> Iterator[bool]:
        """Take a slot if the caller may have one; yield whether it was taken; finally free it."""
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


class Pace:
    """Limits the costly work of each caller to a share of one processor; thread-safe.

    After a piece of work that took a second of processor time, with a share of a fifth, the
    caller's next piece begins four seconds later. The first is never delayed.
    """

    def __init__(self, share: float, patience: float) -> None:
        """Let callers wait up to `patience` seconds for their turn."""
        self._rest = 1 / share - 1
        self._patience = patience
        self._begins: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, whose: Hashable) -> Iterator[bool]:
        """Wait for the caller's turn, yield whether it came soon enough, and count the work."""
        with self._lock:
            now = time.monotonic()
            self._begins = {other: at for other, at in self._begins.items() if at > now}
            wait = self._begins.get(whose, now) - now
        if wait > self._patience:
            yield False
            return
        time.sleep(wait)
        began = time.thread_time()
        try:
            yield True
        finally:
            rest = (time.thread_time() - began) * self._rest
            with self._lock:
                now = time.monotonic()
                self._begins[whose] = max(now, self._begins.get(whose, now)) + rest
