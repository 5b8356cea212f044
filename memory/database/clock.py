"""Whether this process knows what time it is: the database's clock is the one that counts.

Leases, waits and instants are times that some process has written and others compare with their
own. One whose clock has leapt would take what others hold, and write times at which nobody looks
for a day. So it does nothing until its clock is right again (`leases`, `dispatching`).
"""

import threading
import time

import structlog
from django.conf import settings
from django.db import connection
from django.utils import timezone

logger = structlog.get_logger(__name__)

# The database is asked so often, and when the clock has leapt against that of the processor.
ASK_SECONDS = 10.0
LEAP_SECONDS = 1.0

_lock = threading.Lock()
_asked_at = float("-inf")  # by the processor's clock
_between = 0.0  # the two clocks then
_is_right = True


def is_right() -> bool:
    """Tell whether this process' clock agrees with the database's, within UAC_CLOCK_SECONDS.

    With 0 there nobody is asked: every clock is right.
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
    """Return by how many seconds at least this process' clock is ahead of the database's; below 0,
    behind."""
    with connection.cursor() as cursor:
        before = timezone.now()
        cursor.execute("SELECT clock_timestamp()")
        (theirs,) = cursor.fetchone()
        after = timezone.now()
    # It was asked at some moment in between, and that may have taken long.
    least: float = (before - theirs).total_seconds()
    most: float = (after - theirs).total_seconds()
    return max(least, min(most, 0.0))
