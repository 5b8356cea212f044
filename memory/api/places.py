"""Places for requests that keep a thread: a workspace leaves some to others."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Places:
    """So many requests wait at a time; any thread may call it.

    A workspace takes a place while it has fewer than `factor` times as many as are free. Alone it
    gets two thirds of them with a factor of 2, half of them with 1, and there are some left for the
    next one, and for the one after that (Choudhury and Hahne, "Dynamic queue length thresholds",
    1998).
    """

    def __init__(self, number: int, factor: int = 2) -> None:
        """Have so many places, all of them free."""
        self._free = number
        self._factor = factor
        self._taken = Counter[int]()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, workspace_pk: int) -> Iterator[bool]:
        """Yield whether there was a place, which is free again afterwards."""
        with self._lock:
            admitted = self._taken[workspace_pk] < self._factor * self._free
            if admitted:
                self._free -= 1
                self._taken[workspace_pk] += 1
        try:
            yield admitted
        finally:
            with self._lock:
                self._free += admitted
                self._taken[workspace_pk] -= admitted
                if not self._taken[workspace_pk]:
                    del self._taken[workspace_pk]
