"""Test whether sandboxes are safe and work here, and say what to do if not.

It verifies every guarantee of the Docker runner on this machine: the engine, the image, the
confinement and each limit. Nothing is believed because a setting says so.
"""

import datetime
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import docker as engine
from django.conf import settings
from docker.errors import DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from memory.workspace_settings.sandbox_limits import effective
from workers.sandbox import docker
from workers.sandbox.client import ChannelSandbox
from workers.sandbox.image import SOURCES, default_image
from workers.sandbox.interface import MEBIBYTE, Limits, Sandbox, SandboxError, Shape

State = Literal["ok", "warning", "FAILED", "not tried"]

# The oldest API of the Docker engine tested with this release.
TESTED_API = (1, 41)
# Too little for the interpreter and the memory that it is told to fill; enough for a container to
# start.
SMALL_MIB = 64
SCRATCH_MIB = 4
FORKS = 600
# Exit statuses of a program that could not fork, and of one that was killed.
REFUSED_TO_FORK = 3
KILLED = 128 + signal.SIGKILL
# Exit status of gVisor if it has no thread left for itself.
GVISOR_FAILED = 2
ENGINE_WAIT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check; `fix` says what to do unless all is well."""

    check: str
    state: State
    found: str
    fix: str = ""


class Failed(Exception):
    """A check failed: what was found, and what to do."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.found = found
        self.fix = fix


class Doubtful(Failed):
    """A check passed with something that could be better."""


# --- the checks, each of which returns what it found, or raises Failed


def examine() -> Iterator[CheckResult]:
    """Run all checks, in an order in which each needs only what comes before it.

    Yields findings as they are made. After a failure without which the rest makes no sense, the
    names of the other checks follow as "not tried".
    """
    with ExitStack() as stack:
        opened: list[ChannelSandbox] = []

        def start() -> str:
            opened.append(stack.enter_context(_opened()))
            return f"started, and confined: {_told(opened[0].hello)}"

        before = {"image": _image, "control groups": _control_groups, "runtime": _runtime}
        checks = [("engine",), tuple(before), ("start",), (*CHECKS_INSIDE, *CHECKS_OUTSIDE)]
        yield _finding("runner", _runner)
        for needed, group in enumerate(({"engine": _engine}, before, {"start": start}), start=1):
            findings = [_finding(name, check) for name, check in group.items()]
            yield from findings
            if failed := [one.check for one in findings if one.state == "FAILED"]:
                for name in chain(*checks[needed:]):
                    found = f"needs what failed: {', '.join(failed)}"
                    yield CheckResult(check=name, state="not tried", found=found)
                return
        for name, look in CHECKS_INSIDE.items():
            if not opened[-1].alive:  # the check before broke it, and has reported that
                opened.append(stack.enter_context(_opened()))
            yield _finding(name, partial(look, opened[-1]))
        for name, check in CHECKS_OUTSIDE.items():
            yield _finding(name, check)


def _finding(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(check=name, state="ok", found=check())
    except Failed as failed:
        state: State = "warning" if isinstance(failed, Doubtful) else "FAILED"
        return CheckResult(check=name, state=state, found=failed.found, fix=failed.fix)
    except SandboxError as error:
        return CheckResult(
            check=name,
            state="FAILED",
            found=error.message,
            fix="see the message, and dockerd's log",
        )
    except (DockerException, RequestException, OSError) as error:
        return CheckResult(
            check=name,
            state="FAILED",
            found=f"the engine: {error}",
            fix="see dockerd's log, and whether the engine still answers",
        )


def _runner() -> str:
    name = settings.UAC_SANDBOX_RUNNER
    if name == "process":
        raise Doubtful(
            "UAC_SANDBOX_RUNNER=process: user code runs without containers",
            "set it to docker; process is for development",
        )
    if name == "auto":
        raise Doubtful(
            "UAC_SANDBOX_RUNNER=auto: where Docker fails, user code runs without containers",
            "set it to docker where people's code runs",
        )
    return f"UAC_SANDBOX_RUNNER={name}"


def _engine() -> str:
    where = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        with _client() as client:
            version = client.version()
    except (DockerException, RequestException, OSError) as error:
        said = str(error)
        if "Permission denied" in said or "Errno 13" in said:
            raise Failed(
                f"{where} refuses this user ({os.geteuid()})",
                "run the sandbox workers, and this, as a user who may use the engine (a member of"
                " the group docker, which is as powerful as root), or set DOCKER_HOST to another",
            ) from None
        raise Failed(
            f"no engine answers at {where}: {said}",
            "start the Docker engine (systemctl start docker), or set DOCKER_HOST to where one is",
        ) from None
    found = f"{where}: Docker {version['Version']}, API {version['ApiVersion']}"
    if tuple(map(int, version["ApiVersion"].split("."))) < TESTED_API:
        raise Doubtful(found, "tested with API 1.41 and newer: upgrade the engine")
    return f"{found}, Linux {version['KernelVersion']}"


def _image() -> str:
    name = _image_name()
    try:
        with _client() as client:
            image = client.images.get(name)
    except ImageNotFound:
        raise Failed(
            f"the engine has no image {name}",
            "build it with `python -m workers.sandbox.build` (make image), or name another in"
            " UAC_SANDBOX_IMAGE",
        ) from None
    return f"{name}, {image.id}"


def _control_groups() -> str:
    with _client() as client:
        info = client.info()
    found = f"version {info.get('CgroupVersion', '1')}, driver {info.get('CgroupDriver')}"
    missing = [
        name
        for key, name in (
            ("MemoryLimit", "memory"),
            ("SwapLimit", "swap"),
            ("PidsLimit", "processes"),
            ("CpuCfsQuota", "CPU"),
        )
        if not info.get(key)
    ]
    if missing:
        raise Failed(
            f"{found}; the engine cannot limit: {', '.join(missing)}",
            "boot the kernel with `cgroup_enable=memory swapaccount=1`, or with control groups of"
            " version 2, and restart the engine",
        )
    return f"{found}; limits memory, swap, processes and CPU"


def _runtime() -> str:
    with _client() as client:
        info = client.info()
    runtimes = info.get("Runtimes") or {}
    name = settings.UAC_SANDBOX_RUNTIME or info.get("DefaultRuntime", "")
    if name not in runtimes:
        raise Failed(
            f"the engine has no runtime {name}, but {', '.join(sorted(runtimes))}",
            "add it to /etc/docker/daemon.json as docs/runtimes.md shows and send dockerd a SIGHUP,"
            " or name another in UAC_SANDBOX_RUNTIME",
        )
    about = runtimes[name] or {}
    arguments = about.get("runtimeArgs") or []
    if any(argument.lstrip("-").startswith("ignore-cgroups") for argument in arguments):
        raise Failed(
            f"{name} runs with {' '.join(arguments)}: nothing limits memory and processes",
            "take --ignore-cgroups out of the runtimeArgs in /etc/docker/daemon.json",
        )
    path = about.get("path", name)
    return " ".join([name, *([] if path == name else [path]), *arguments])


# --- inside a sandbox


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
    theirs = _value(sandbox, code)
    differing = sorted(path for path in {*ours, *theirs} if ours.get(path) != theirs.get(path))
    if differing:
        raise Failed(
            f"the image is of another release: {', '.join(differing[:5])} differ",
            "build it with `python -m workers.sandbox.build`",
        )
    return f"{len(ours)} files are those of this release"


def _privileges(sandbox: Sandbox) -> str:
    user, group, groups = _value(sandbox, "import os\n[os.getuid(), os.getgid(), os.getgroups()]")
    if user == 0 or group == 0 or 0 in groups:
        raise Failed(
            f"user code runs as user {user}, group {group}",
            "have the engine and its runtime obey the user that a container is created with",
        )
    return f"user {user}, no capability, none to be gained"


# Calls that have only in common that the filter refuses them, by names of the C library.
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
    allowed = _value(sandbox, REFUSED)
    if allowed:
        raise Failed(
            f"the filter of system calls lets through: {', '.join(allowed)}",
            "have the engine and its runtime apply workers/sandbox/seccomp.json"
            " (gVisor: --oci-seccomp)",
        )
    return "refuses sockets of every family, namespaces, ptrace, mount and others"


def _network(sandbox: Sandbox) -> str:
    code = (
        "try: lines = open('/proc/self/net/dev').read().splitlines()[2:]\n"
        "except FileNotFoundError: lines = []\n"
        "[line.split(':')[0].strip() for line in lines]"
    )
    interfaces = [name for name in _value(sandbox, code) if name != "lo"]
    if interfaces:
        raise Failed(
            f"there are network interfaces: {', '.join(interfaces)}",
            "have the engine obey `NetworkMode: none`",
        )
    return "no interface but the loopback, and no socket to use it"


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
    allowed = {docker.SCRATCH} if _shape().tmpfs_mib else set()
    if found := sorted(set(_value(sandbox, WRITABLE)) - allowed):
        raise Failed(
            f"files can be created in {', '.join(found[:5])}",
            "have the engine obey `ReadonlyRootfs`, and the runtime mount nothing of its own",
        )
    return (
        f"nothing can be written but to {docker.SCRATCH}" if allowed else "nothing can be written"
    )


def _limit(code: str, outcome: str, what: str, **limits: Any) -> Callable[[Sandbox], str]:
    """Check that this code ends with this outcome, and harms nothing."""

    def check(sandbox: Sandbox) -> str:
        try:
            _value(sandbox, code, **limits)
            ended = "nothing stopped it"
        except SandboxError as error:
            ended = error.outcome
        if ended != outcome:
            raise Failed(f"{what}: {ended}, instead of {outcome}", UNENFORCED)
        if not sandbox.alive or _value(sandbox, "1 + 1") != 2:
            raise Failed(f"{what} took the sandbox along", UNENFORCED)
        return f"{what}: {outcome}"

    return check


UNENFORCED = "the kernel or the runtime does not enforce it: use others (docs/runtimes.md)"


def _fork_bomb(sandbox: Sandbox) -> str:
    code = (
        "import os\nstarted = 0\ntry:\n    while started < 1000:\n"
        "        if os.fork() == 0: os._exit(0)\n        started += 1\n"
        "except OSError: pass\nstarted"
    )
    started = _value(sandbox, code)
    if started:
        raise Failed(f"a query could start {started} processes", UNENFORCED)
    return "a query can start no process"


def _value(sandbox: Sandbox, code: str, **limits: Any) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    wide = {"wall_seconds": 20, "cpu_seconds": 20} | limits
    return sandbox.evaluate(code, now=now, time_zone="UTC", limits=Limits(**wide)).value


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

# --- outside of it


def _memory_of_a_container() -> str:
    code = f"x = bytearray({4 * SMALL_MIB * MEBIBYTE})\nfor n in range(0, len(x), 4096): x[n] = 1"
    if (status := _run(code, SMALL_MIB)) != KILLED:
        raise Failed(
            f"a container of {SMALL_MIB} MiB that took {4 * SMALL_MIB} MiB ended with {status}",
            "have the engine enforce limits of memory (gVisor: never --ignore-cgroups)",
        )
    return "a container that exceeds its memory is killed"


def _processes_of_a_container() -> str:
    code = (
        f"import os, sys, time\nfor n in range({FORKS}):\n"
        f"    try: pid = os.fork()\n    except OSError: sys.exit({REFUSED_TO_FORK})\n"
        "    if pid == 0: time.sleep(30); os._exit(0)"
    )
    ends = {REFUSED_TO_FORK, KILLED} | ({GVISOR_FAILED} if docker.is_gvisor() else set())
    if (status := _run(code, _shape().memory_mib)) not in ends:
        raise Failed(
            f"a container that forked {FORKS} times ended with {status}",
            "have the engine enforce limits of processes (gVisor: never --ignore-cgroups)",
        )
    return f"a container cannot start {FORKS} processes"


def _run(code: str, memory_mib: int) -> int:
    """Return the exit status of a container that runs this program instead of the runner."""
    config = docker.container_config(_image_name(), 0, _shape())
    config["Entrypoint"] = ["python3", "-S", "-c", code]
    config["HostConfig"]["Memory"] = config["HostConfig"]["MemorySwap"] = memory_mib * MEBIBYTE
    with _client() as client, _created(client, config) as container:
        client.api.start(container)
        return int(client.api.wait(container, timeout=ENGINE_WAIT_SECONDS)["StatusCode"])


@contextmanager
def _created(client: engine.DockerClient, config: dict[str, Any]) -> Iterator[str]:
    """Create a container, yield its id, and remove it in the end if it still exists."""
    created = client.api.create_container_from_config(config)  # type: ignore[no-untyped-call]
    try:
        yield created["Id"]
    finally:
        with suppress(NotFound):
            client.api.remove_container(created["Id"], force=True)


def _strangers() -> str:
    """Two sandboxes must have different users and hash seeds."""
    code = "import os\n[os.getuid(), hash('a string')]"
    with _opened() as one, _opened() as same, _opened(hash_seed=1) as other:
        users, hashes = zip(*(_value(sandbox, code) for sandbox in (one, same, other)), strict=True)
    if len(set(users)) == 1:  # they are drawn at random, so two may rarely be the same
        raise Failed(
            f"all containers run as user {users[0]}",
            "have the engine and its runtime obey the user that a container is created with",
        )
    if hashes[0] != hashes[1] or hashes[0] == hashes[2]:
        raise Failed(
            "hash seeds are not obeyed",
            "have the engine pass the environment on, and rebuild the image",
        )
    return f"users {', '.join(map(str, users))}; two hash seeds"


def _scratch() -> str:
    """The writable folder that a workspace may have must be small, and empty at every use."""
    code = (
        f"written, most = 0, {4 * SCRATCH_MIB * MEBIBYTE}\n"
        f"try:\n    with open('{docker.SCRATCH}/file', 'wb', 0) as file:\n"
        "        while written < most: written += file.write(bytes(65536))\n"
        "except OSError: pass\nwritten"
    )
    with _opened(shape=replace(_shape(), tmpfs_mib=SCRATCH_MIB)) as sandbox:
        written = _value(sandbox, code)
        left = _value(sandbox, f"import os\nos.listdir('{docker.SCRATCH}')")
    if not 0 < written <= SCRATCH_MIB * MEBIBYTE or left:
        raise Failed(
            f"to a folder of {SCRATCH_MIB} MiB {written} bytes could be written, and {len(left)}"
            " files stayed for the next use",
            "have the engine and its runtime obey `Tmpfs`, or let no workspace have such a folder"
            " (UAC_SANDBOX_TMPFS_MIB_MOST=0)",
        )
    return f"a folder of {SCRATCH_MIB} MiB takes no more, and is empty at the next use"


def _leftovers() -> str:
    with subprocess.Popen([sys.executable, "-c", ""]) as worker:  # nosec B603 # a constant
        worker.wait()
    config = docker.container_config(_image_name(), 0, _shape())
    config["Labels"] = {docker.LABEL: docker.owner(worker.pid)}
    with _client() as client, _created(client, config) as container:
        docker.reap()
        # The container is gone, or about to be if another worker's `reap` found it first.
        with suppress(NotFound):
            if client.api.inspect_container(container)["State"]["Status"] != "removing":
                raise Failed(
                    "what a killed worker leaves is not found by its label",
                    "run the sandbox workers in a PID namespace of the machine that the engine is"
                    " on, and see why it loses labels",
                )
    return "what a killed worker leaves is found and removed"


CHECKS_OUTSIDE: dict[str, Callable[[], str]] = {
    "container's memory": _memory_of_a_container,
    "container's processes": _processes_of_a_container,
    "limit of files": _scratch,
    "users and seeds": _strangers,
    "leftovers": _leftovers,
}


@contextmanager
def _opened(*, hash_seed: int = 0, shape: Shape | None = None) -> Iterator[ChannelSandbox]:
    """Open a sandbox with an empty project."""
    try:
        sandbox = docker.start(hash_seed=hash_seed, shape=shape or _shape())
    except SandboxError as error:
        raise Failed(error.message, _fix_of_start(error.message)) from None
    try:
        sandbox.load({})
        yield sandbox
    finally:
        sandbox.close()


def _fix_of_start(message: str) -> str:
    if "is not confined" in message:
        return (
            "an engine that cannot read workers/sandbox/seccomp.json starts containers without it:"
            " upgrade it; gVisor needs --oci-seccomp and runsc or gvisor in its name"
            " (docs/runtimes.md)"
        )
    if "rebuild its image" in message:
        return "build the image with `python -m workers.sandbox.build`"
    return "see the message, and dockerd's log"


def _shape() -> Shape:
    """Return the container shape of workspaces without limits of their own."""
    return Shape.of(effective({}))


def _image_name() -> str:
    return settings.UAC_SANDBOX_IMAGE or default_image()


@contextmanager
def _client() -> Iterator[engine.DockerClient]:
    with closing(engine.from_env(timeout=docker.ENGINE_SECONDS)) as client:
        yield client


def _told(hello: Mapping[str, Any]) -> str:
    parts = {name: hello.get(name) for name in docker.CONFINED}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in parts.items())
