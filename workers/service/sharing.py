"""Share one interpreter and its memory among threads, and divide the processors among processes."""

import ctypes
import gc
import os
import sys

_libc = ctypes.CDLL(None)

SWITCH_SECONDS = 0.0005
# `M_ARENA_MAX` of the C library's <malloc.h>.
_M_ARENA_MAX = -8
MAX_ARENAS = 2
# On a busy machine, this gives a third of the processor time that normal priority would.
BACKGROUND_NICENESS = 5


def share_fairly() -> None:
    """Make a computing thread yield to the others ten times as often as Python's default.

    A thread waits for the interpreter each time that the database, Redis or a sandbox has answered.
    With the default of 5 ms this is noticeable if another thread computes for seconds.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    # A full collection stops all threads while it visits every object. The objects that exist when
    # a process begins its work, some hundred thousand, stay until its end.
    gc.collect()
    gc.freeze()


def share_memory() -> None:
    """Have all threads allocate from the same few arenas, if the C library supports that.

    By default each thread has its own arena, which keeps the most that the thread ever needed: a
    web process with 16 threads grew by 4 MiB a minute for as long as it was measured.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, MAX_ARENAS)


def prefer_others() -> None:
    """Have the system prefer other processes when the processors are busy.

    For a worker whose work nobody waits for, such as indexing for search: a tenant who keeps it
    busy then takes less from the requests and runs of the others. Threads that exist already keep
    their priority; a worker's pool starts its threads later.
    """
    os.nice(BACKGROUND_NICENESS)
