"""Check this process's clock against the database's, which is the reference.

Leases, waits and instants are times that one process writes and others compare with their own
clocks. A process whose clock has jumped would take over leases that others hold, and schedule work
a day too early or too late. So such a process does nothing until its clock is right again
(`leases`, `dispatching`).
"""

import threading
import time

import structlog
from django.conf import settings
from django.db import connection
from django.utils import timezone

logger = structlog.get_logger(__name__)

# Seconds between queries of the database's clock. It is also queried when the wall clock has jumped
# by LEAP_SECONDS relative to the monotonic one.
ASK_SECONDS = 10.0
LEAP_SECONDS = 1.0

_lock = threading.Lock()
_asked_at = float("-inf")  # by the monotonic clock
_between = 0.0  # wall clock minus monotonic clock at that time
_is_right = True


def is_right() -> bool:
    """Return whether this process's clock agrees with the database's, within UAC_CLOCK_SECONDS.

    If that is 0, the database is not queried, and every clock counts as right.
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
    """Return the least number of seconds by which this process's clock is ahead of the database's.

    The number is negative if the clock is behind.
    """
    with connection.cursor() as cursor:
        before = timezone.now()
        cursor.execute("SELECT clock_timestamp()")
        (theirs,) = cursor.fetchone()
        after = timezone.now()
    # The database read its clock at some moment between the two times, which may be far apart.
    least: float = (before - theirs).total_seconds()
    most: float = (after - theirs).total_seconds()
    return max(least, min(most, 0.0))
