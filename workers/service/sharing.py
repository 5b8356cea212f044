"""Threads of one process share its interpreter."""

import gc
import sys

SWITCH_SECONDS = 0.0005


def share_fairly() -> None:
    """Have a thread that computes give way to the others ten times as often as Python does.

    Whoever has asked the database, Redis or a sandbox waits for the interpreter when the answer is
    there, each time. With the usual 5 ms that is felt where another thread computes for seconds.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    # A full collection stops all threads while it looks at every object. Those that are there when
    # a process begins its work, some hundred thousand, stay until its end.
    gc.collect()
    gc.freeze()
