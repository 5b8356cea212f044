"""Which worker owns a container, according to its label, and whether it is orphaned."""

import functools
import os
from pathlib import Path
from typing import Any

# The label on every container; its value identifies the container's `owner`, the process that
# created the container.
LABEL = "uac.sandbox"
# Age, in seconds, at which a running container counts as a leftover if nothing is known about its
# worker. This age leaves a container enough time to wait for a user and then serve the longest
# series of requests, each of which has a deadline.
LONGEST_LIFE_SECONDS = 30 * 60
# A container that has not been started within this many seconds of its creation is a leftover: no
# worker knows of it, or its worker was killed. A container that was created in another PID
# namespace and is no longer running is a leftover after this time, too.
LONGEST_START_SECONDS = 30

# Ids of containers that this process could not remove.
abandoned: set[str] = set()


def owner(pid: int) -> str:
    """Return an identifier for a process that is unique across machines, namespaces and time."""
    return f"{_namespace()}/{pid}/{_started(pid)}"


@functools.cache
def _namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> str:
    """Return the start time of a process, in ticks since boot; "" if it cannot be read."""
    try:  # the fields follow the process's name in parentheses, which may contain anything
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_leftover(container: dict[str, Any], *, now: float) -> bool:
    """Return whether a container is a leftover.

    A container is a leftover if its worker is known to be done with it, or if nothing is known
    about the worker and the container is too old.
    """
    namespace, pid, started = container["Labels"][LABEL].rsplit("/", 2)
    running = container["State"] == "running"
    old = now - container["Created"] > (LONGEST_LIFE_SECONDS if running else LONGEST_START_SECONDS)
    if namespace == _namespace():
        # If the engine created a container but could not report this, no worker knows of it.
        unknown = container["State"] == "created" and old
        return unknown or container["Id"] in abandoned or not _lives(int(pid), started)
    return bool(old)


def _lives(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process, about which nothing else is visible
        pass
    return _started(pid) in (started, "")
