"""What this process asks of the kernel about itself and the processes that it started."""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_GET_SECCOMP = 21
PR_CAPBSET_READ = 23
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39

CAPABILITY_VERSION_3 = 0x20080522

# When gVisor's kernel says that it was built, in every release; no Linux was, at that second.
GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"

SWEEP_SECONDS = 5.0

# Of control groups version 2 and version 1, as a container sees its own.
OUT_OF_MEMORY_COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)

# The folder that can be written to, where there is one: the host, which mounted it, says so.
SCRATCH = os.environ.get("UAC_SCRATCH")

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; OSError if the kernel refuses."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def confinement() -> dict[str, str | int]:
    """What the kernel says of itself, and of how it confines this process.

    A seccomp mode of 2 is a filter; `capabilities` are those held and those that could be gained,
    by their bits. What the kernel does not tell is -1. Asked for by system calls, since there may
    be no /proc.
    """
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    held = (ctypes.c_uint32 * 6)()  # twice the effective, permitted and inheritable ones
    told = _libc.capget(header, held) == 0
    bounds = [_libc.prctl(PR_CAPBSET_READ, bit, 0, 0, 0) == 1 for bit in range(64)]
    capabilities = sum(1 << bit for bit, could in enumerate(bounds) if could)
    for index, bits in enumerate(held):
        capabilities |= bits << 32 * (index // 3)
    return {
        "kernel": "gvisor" if os.uname().version == GVISOR else "linux",
        "seccomp": _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0),
        "no_new_privileges": _libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        "capabilities": capabilities if told else -1,
    }


def out_of_memory_kills() -> int:
    """How many processes of this container the kernel has killed so far for lack of memory.

    Zero where there is no such limit, or nothing is said of it.
    """
    for counters in OUT_OF_MEMORY_COUNTERS:
        with suppress(OSError):
            for line in counters.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def count_children() -> int | None:
    """How many children this process has, orphans of its descendants and the dead included.

    None where that cannot be told.
    """
    try:
        return len(Path("/proc/thread-self/children").read_text().split())
    except OSError:
        return None


def kill_descendants() -> None:
    """Kill and reap all that descends from this process, which is their subreaper.

    Orphans become children of this process when their parent dies, so that this ends with none.
    TimeoutError if something cannot be killed.
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
            raise TimeoutError("a process of the sandbox cannot be killed")
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def release_memory() -> None:
    """Give back to the kernel what is allocated and not used, where the C library can."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def remove_files() -> None:
    """Remove what was written to the folder that can be written to, if there is one."""
    if SCRATCH is not None:
        for file in Path(SCRATCH).iterdir():  # folders cannot be made
            file.unlink()


def _children() -> list[int]:
    if os.getpid() == 1:
        return [-1]  # all of this namespace; its /proc may be that of another one
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                # The name, in parentheses, may hold anything; the parent is two fields after it.
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.append(int(process.name))
    return found
