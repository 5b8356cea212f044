"""Checks from inside a sandbox: the sandbox's contents, its confinement and its request limits."""

import hashlib
from collections.abc import Callable
from typing import Any

from workers.sandbox.client import Sandbox
from workers.sandbox.doctor_probes import Failed, value_of
from workers.sandbox.image import SOURCES
from workers.sandbox.results import SandboxError


def _is_the_image_of_this_release(sandbox: Sandbox) -> str:
    code = (
        "import hashlib, os, sys\nfound = {}\nroot = sys.modules['sandbox_image'].__path__[0]\n"
        "for folder, _, files in os.walk(root):\n"
        "    for name in files:\n"
        "        if name.endswith('.py'):\n"
        "            path = os.path.join(folder, name)\n"
        "            found[os.path.relpath(path, root)] = "
        "hashlib.sha256(open(path, 'rb').read()).hexdigest()\n"
        "found"
    )
    ours = {
        str(path.relative_to(SOURCES)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in SOURCES.rglob("*.py")
    }
    theirs = value_of(sandbox, code)
    differing = sorted(path for path in {*ours, *theirs} if ours.get(path) != theirs.get(path))
    if differing:
        raise Failed(
            f"the image is from another release: differing files: {', '.join(differing[:5])}",
            "build it with `python -m workers.sandbox.build`",
        )
    return f"all {len(ours)} files match this release"


def _privileges(sandbox: Sandbox) -> str:
    user, group, groups = value_of(sandbox, "import os\n[os.getuid(), os.getgid(), os.getgroups()]")
    if user == 0 or group == 0 or 0 in groups:
        raise Failed(
            f"user code runs as user {user}, group {group}",
            "make the engine and its runtime run each container as the user specified at container"
            " creation",
        )
    return f"user {user}, no capabilities, and none can be gained"


# Code that tries system calls that the filter must block, by their C library names. The code's
# value is the list of the calls that the filter allowed.
REFUSED = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
allowed = []
for name, family in (("IPv4", 2), ("netlink", 16), ("unix", 1), ("packets", 17), ("VSOCK", 40)):
    try:
        socket.socket(family, 3 if family in (16, 17) else 1)
        allowed.append(name + " sockets")
    except OSError as error:
        if error.errno != errno.EPERM:
            allowed.append(name + " sockets: " + str(error))
for name, arguments in (
    ("unshare", (0x10000000,)), ("ptrace", (16, 1, 0, 0)), ("mount", (0, 0, 0, 0, 0)),
    ("setns", (0, 0)), ("chroot", (0,)), ("personality", (0x0040000,)), ("memfd_create", (b"x", 0)),
    ("inotify_init", ()), ("sethostname", (b"x", 1)), ("setsid", ()), ("eventfd", (0, 0)),
):
    ctypes.set_errno(0)
    call = getattr(libc, name, None)
    if call is not None and (call(*arguments) != -1 or ctypes.get_errno() != errno.EPERM):
        allowed.append(name)
allowed
"""


def _seccomp(sandbox: Sandbox) -> str:
    allowed = value_of(sandbox, REFUSED)
    if allowed:
        raise Failed(
            f"the system call filter allows: {', '.join(allowed)}",
            "make the engine and its runtime apply workers/sandbox/seccomp.json"
            " (gVisor: --oci-seccomp)",
        )
    return "blocks all kinds of sockets and, among other calls, unshare, ptrace and mount"


def _network(sandbox: Sandbox) -> str:
    code = (
        "try: lines = open('/proc/self/net/dev').read().splitlines()[2:]\n"
        "except FileNotFoundError: lines = []\n"
        "[line.split(':')[0].strip() for line in lines]"
    )
    interfaces = [name for name in value_of(sandbox, code) if name != "lo"]
    if interfaces:
        raise Failed(
            f"there are network interfaces: {', '.join(interfaces)}",
            "make the engine obey `NetworkMode: none`",
        )
    return "no interface except loopback, and no sockets to use it with"


WRITABLE = """
import os
found = []
for folder, folders, files in os.walk("/"):
    if folder == "/proc":
        folders[:] = []
    try:
        os.close(os.open(os.path.join(folder, "leak"), os.O_WRONLY | os.O_CREAT, 0o600))
        found.append(folder)
    except OSError:
        pass
found
"""


def _read_only(sandbox: Sandbox) -> str:
    if writable := value_of(sandbox, WRITABLE):
        raise Failed(
            f"files can be created in {', '.join(writable[:5])}",
            "make the engine obey `ReadonlyRootfs`, and the runtime mount no other writable"
            " directory",
        )
    return "nothing can be written to"


def _limit(code: str, outcome: str, what: str, **limits: Any) -> Callable[[Sandbox], str]:
    """Return a check that `code` ends with `outcome` when run and leaves the sandbox usable."""

    def check(sandbox: Sandbox) -> str:
        try:
            value_of(sandbox, code, **limits)
            ended = "success"
        except SandboxError as error:
            ended = error.outcome
        if ended != outcome:
            raise Failed(f"{what}: {ended} instead of {outcome}", UNENFORCED)
        if not sandbox.alive or value_of(sandbox, "1 + 1") != 2:
            raise Failed(f"{what} ended the whole sandbox", UNENFORCED)
        return f"{what}: {outcome}"

    return check


UNENFORCED = "this limit is not enforced: use another kernel or runtime (docs/runtimes.md)"


def _fork_bomb(sandbox: Sandbox) -> str:
    code = (
        "import os\nstarted = 0\ntry:\n    while started < 1000:\n"
        "        if os.fork() == 0: os._exit(0)\n        started += 1\n"
        "except OSError: pass\nstarted"
    )
    started = value_of(sandbox, code)
    if started:
        raise Failed(f"a query could start {started} processes", UNENFORCED)
    return "a query cannot start any process"


CHECKS_INSIDE: dict[str, Callable[[Sandbox], str]] = {
    "image's content": _is_the_image_of_this_release,
    "privileges": _privileges,
    "seccomp": _seccomp,
    "network": _network,
    "read-only": _read_only,
    "limit of time": _limit("while True: pass", "timeout", "a loop", wall_seconds=0.5),
    "limit of CPU": _limit("while True: pass", "timeout", "a second of CPU", cpu_seconds=1),
    "limit of memory": _limit("b'x' * 10 ** 10", "out_of_memory", "10 GB of memory"),
    "limit of processes": _fork_bomb,
    "limit of output": _limit(
        "x = 'x' * 10 ** 6\nfor n in range(100): print(x)", "output_limit", "100 MB of output"
    ),
    "limit of results": _limit("'x' * 2 ** 22", "result_limit", "a result of 4 MB"),
    "limit of depth": _limit(
        "x = 1\nfor n in range(40): x = [x]\nx", "result_limit", "a result of 40 levels"
    ),
}
