"""Places for requests that keep a thread: whoever takes some leaves some to others."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Places:
    """So many requests wait at a time; any thread may call it.

    Whoever asks, a workspace or a member of the staff, takes a place while having fewer than
    `factor` times as many as are free. Alone one gets two thirds of them with a factor of 2, half
    of them with 1, and there are some left for the next one, and for the one after that (Choudhury
    and Hahne, "Dynamic queue length thresholds", 1998).
    """

    def __init__(self, number: int, factor: int = 2) -> None:
        """Have so many places, all of them free."""
        self._free = number
        self._factor = factor
        self._taken = Counter[Hashable]()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, whose: Hashable) -> Iterator[bool]:
        """Yield whether there was a place, which is free again afterwards."""
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
