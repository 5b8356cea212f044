"""Share one interpreter and its memory among threads, and divide the processors among processes."""

import ctypes
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None)

SWITCH_SECONDS = 0.0005
# `M_ARENA_MAX` in the C library's <malloc.h>.
_M_ARENA_MAX = -8
MAX_ARENAS = 2
# On a busy machine, this niceness gives a process a third of the processor time that normal
# priority would.
BACKGROUND_NICENESS = 5
_AUTOGROUP = Path("/proc/self/autogroup")


def share_fairly() -> None:
    """Make a CPU-bound thread yield to the others ten times as often as it would by default.

    A thread has to wait for the interpreter lock each time it gets a response from the database,
    Redis or a sandbox. At the default switch interval of 5 ms this wait is noticeable if another
    thread computes for seconds.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    # A full garbage collection stops all threads while it visits every object. Exclude the objects
    # that exist when a process begins its work: there are several hundred thousand, and they live
    # until the process exits.
    gc.collect()
    gc.freeze()


def share_memory() -> None:
    """Have all threads allocate from the same few memory arenas, if the C library supports that.

    By default, each thread has its own arena, which retains as much memory as the thread has ever
    needed at one time.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, MAX_ARENAS)


def prefer_others() -> None:
    """Lower this process's priority, so that other processes come first when the CPUs are busy.

    This is for a worker whose work nobody waits for, such as indexing for search: a workspace that
    keeps it busy then takes less processor time away from other workspaces' requests and runs.
    Threads that already exist keep their priority, but a worker's pool starts its threads later.
    """
    os.nice(BACKGROUND_NICENESS)
    # Where Linux groups processes by session, priorities count only within a session.
    if os.getsid(0) == os.getpid() and _AUTOGROUP.exists():
        with suppress(OSError):
            _AUTOGROUP.write_text(str(BACKGROUND_NICENESS))
