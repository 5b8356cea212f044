"""Checking this process's clock against the database's clock, which is the reference.

The times at which leases expire and work becomes due are written by one process, and compared by
other processes with their own clocks. A process whose clock has jumped would take over leases held
by other processes, and schedule work, say, a day too early or too late. So until its clock is right
again, such a process claims and dispatches no work (`leases`, `dispatching`), writes no results
(`leases`), raises no alarms, and refuses requests that write (`memory.kernel.http.clocks`).
"""

import threading
import time

import structlog
from django.conf import settings
from django.db import connection
from django.utils import timezone

logger = structlog.get_logger(__name__)

# Seconds between queries of the database's clock, which is also queried if this process's wall
# clock has jumped by LEAP_SECONDS relative to its monotonic clock.
ASK_SECONDS = 10.0
LEAP_SECONDS = 1.0

_lock = threading.Lock()
_asked_at = float("-inf")  # when the database's clock was last queried, by the monotonic clock
_between = 0.0  # wall clock minus monotonic clock at the last query
_is_right = True


def is_right() -> bool:
    """Return whether this process's clock is within UAC_CLOCK_SECONDS of the database's clock.

    If that setting is 0, the database is not queried, and every clock is considered right.
    """
    global _asked_at, _between, _is_right
    if not settings.UAC_CLOCK_SECONDS:
        return True
    now = time.monotonic()
    between = time.time() - now
    with _lock:
        if now - _asked_at < ASK_SECONDS and abs(between - _between) < LEAP_SECONDS:
            return _is_right
    off = ahead()
    right: bool = abs(off) <= settings.UAC_CLOCK_SECONDS
    with _lock:
        if right != _is_right:
            event = "clock_is_right" if right else "clock_is_wrong"
            logger.error(event, ahead=round(off, 1))
        _asked_at, _between, _is_right = now, between, right
    return right


def ahead() -> float:
    """Return by how many seconds, at least, this process's clock is ahead of the database's clock.

    The number is negative if the clock is behind.
    """
    with connection.cursor() as cursor:
        before = timezone.now()
        cursor.execute("SELECT clock_timestamp()")
        (theirs,) = cursor.fetchone()
        after = timezone.now()
    # The database read its clock between `before` and `after`, which may be far apart.
    least: float = (before - theirs).total_seconds()
    most: float = (after - theirs).total_seconds()
    return max(least, min(most, 0.0))
