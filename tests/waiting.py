"""Waiting times of tests: ample on a fast machine, and longer as the machine is slower.

What is scaled are waits for something to happen and upper bounds on durations. A limit that is
itself under test is never scaled.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Measured by the first process of a session; the others inherit it.
VARIABLE = "UAC_TEST_SLOWNESS"
MAX_SLOWNESS = 10.0
_LOOPS = 1_600_000
_REFERENCE_SECONDS = 0.2  # of those loops, where the machine has nothing else to do


def slowness() -> float:
    """Return how many times slower than the reference this machine is: 1 to MAX_SLOWNESS."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{_measure_slowness():.2f}"
    return min(max(float(os.environ[VARIABLE]), 1.0), MAX_SLOWNESS)


def _measure_slowness() -> float:
    # By wall clock: a machine that is shared or throttled is slow, too.
    began = time.perf_counter()
    value = 0
    for number in range(_LOOPS):
        value = (value * 31 + number) & 0xFFFFFFFF
    return (time.perf_counter() - began) / _REFERENCE_SECONDS


def scaled(seconds: float) -> float:
    """Return a bound for this machine that is given as on a fast one."""
    return seconds * slowness()


def eventually(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Poll until the condition holds; return False if it does not within the scaled bound."""
    deadline = time.monotonic() + scaled(seconds)
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def polled(look: Callable[[], T], enough: Callable[[T], object], seconds: float = 120) -> T:
    """Poll until `enough` holds, and return the last value.

    Fail with it after the bound, which is scaled.
    """
    deadline = time.monotonic() + scaled(seconds)
    while not enough(seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {scaled(seconds):g} s; last seen: {seen!r}")
        time.sleep(0.1)
    return seen
