"""Share one interpreter fairly between the threads of a process."""

import gc
import sys

SWITCH_SECONDS = 0.0005


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
