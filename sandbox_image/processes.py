"""Query the kernel about this process and its children, set process attributes, and clean up."""

import ctypes
import os
import signal
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_GET_SECCOMP = 21
PR_CAPBSET_READ = 23
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39

CAPABILITY_VERSION_3 = 0x20080522

# The kernel version string, including the build time, that every gVisor release reports; no real
# Linux kernel was built in that second.
GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"

SWEEP_SECONDS = 5.0

# The container's own control group counters, as seen from inside: cgroup version 2, then 1.
OUT_OF_MEMORY_COUNTERS = (
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; raise OSError if the kernel refuses."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def confinement() -> dict[str, str | int]:
    """Report which kernel this is and how it confines this process.

    A `seccomp` mode of 2 means a filter; `capabilities` has a bit set for each capability that this
    process has or could gain. A value that the kernel doesn't reveal is -1. All of this comes from
    system calls, since /proc may be missing.
    """
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable capabilities: first the low words, then the high words.
    held = (ctypes.c_uint32 * 6)()
    is_readable = _libc.capget(header, held) == 0
    bounds = [_libc.prctl(PR_CAPBSET_READ, bit, 0, 0, 0) == 1 for bit in range(64)]
    capabilities = sum(1 << bit for bit, could in enumerate(bounds) if could)
    for index, bits in enumerate(held):
        capabilities |= bits << 32 * (index // 3)
    return {
        "kernel": "gvisor" if os.uname().version == GVISOR else "linux",
        "seccomp": _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0),
        "no_new_privileges": _libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        "capabilities": capabilities if is_readable else -1,
    }


def out_of_memory_kills() -> int:
    """Return how many processes in this container have been OOM-killed so far.

    Returns 0 if there is no memory limit or the kernel doesn't count OOM kills.
    """
    for counters in OUT_OF_MEMORY_COUNTERS:
        with suppress(OSError):
            for line in _read(counters).splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def count_children() -> int | None:
    """Return the number of this process's children, including zombies and adopted orphans.

    Returns None if the number can't be determined.
    """
    try:
        return len(_read("/proc/thread-self/children").split())
    except OSError:
        return None


def kill_descendants() -> None:
    """Kill and reap all descendants of this process, which must be a subreaper.

    When a descendant dies, its children become children of this process, so eventually all of them
    are reaped. Raises TimeoutError if a process can't be killed in time.
    """
    deadline = time.monotonic() + SWEEP_SECONDS
    while True:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if reaped:
            continue
        if time.monotonic() > deadline:
            raise TimeoutError("a process in the sandbox cannot be killed")
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def release_memory() -> None:
    """Return allocated but unused memory to the kernel, if the C library supports it."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def _children() -> list[int]:
    if os.getpid() == 1:
        return [-1]  # kills every process in this namespace; /proc may show another namespace
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                # The process's name, in parentheses, may contain anything. The second field after
                # it is the parent's id.
                fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
                if int(fields[1]) == os.getpid():
                    pids.append(int(name))
    return pids


def _read(path: str) -> str:
    # Not with pathlib, whose import takes longer than the imports of all other modules used here.
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
