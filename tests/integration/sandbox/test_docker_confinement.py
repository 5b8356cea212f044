"""Confinement of a container, seen from inside by code that no policy has checked."""

import errno
import json
import platform
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.sandbox.conftest import PROJECT, sandbox_error, value_of
from tests.integration.sandbox.containers import Containers
from tests.integration.sandbox.engine import Runtime
from tests.steps import not_none
from workers.sandbox import container_template, docker
from workers.sandbox.client import Sandbox
from workers.sandbox.container_template import SECCOMP_PROFILE, USER_IDS
from workers.sandbox.limits import MEBIBYTE
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def inside(docker_image: str, runtime: Runtime) -> Iterator[Sandbox]:
    """A sandbox that every test attacks, and that must survive them all."""
    with runtime.chosen():
        sandbox = docker.start()
    sandbox.load(PROJECT)
    yield sandbox
    assert sandbox.alive
    assert ask(sandbox, "[len(trips), passport.number]") == [3, "X1"]
    with runtime.chosen():
        sandbox.close()


def ask(sandbox: Sandbox, code: str) -> Any:
    return value_of(sandbox, code, wall_seconds=30, cpu_seconds=30)


STATUS = """
import ctypes, os
libc = ctypes.CDLL(None)
held = (ctypes.c_uint32 * 6)()
{
    "seccomp": libc.prctl(21, 0, 0, 0, 0),
    "no new privileges": libc.prctl(39, 0, 0, 0, 0),
    "told": libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), held),
    "capabilities": list(held) + [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1],
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "kernel": os.uname().release,
}
"""


def test_the_kernel_confirms_it(inside: Sandbox, runtime: Runtime) -> None:
    found = ask(inside, STATUS)
    assert (found["seccomp"], found["no new privileges"]) == (2, 1)
    assert (found["told"], found["capabilities"]) == (0, [0] * 6)
    (user_id,) = set(found["ids"])
    assert user_id in USER_IDS
    # Under gVisor, the release is not that of the machine's kernel.
    assert (found["kernel"] == platform.release()) is (not runtime.is_gvisor)


@pytest.mark.usefixtures("chosen")
def test_each_container_has_a_user_of_its_own(inside: Sandbox, monkeypatch: Any) -> None:
    mine = ask(inside, STATUS)["ids"][0]
    # User ids are drawn at random; two may rarely be the same.
    monkeypatch.setattr(container_template, "USER_IDS", [one for one in USER_IDS if one != mine])
    with docker.start() as other:
        assert ask(other, STATUS)["ids"][0] != mine


@pytest.mark.usefixtures("chosen")
def test_the_engine_confirms_it(docker_image: str, runtime: Runtime) -> None:
    with Containers() as mine, docker.start():
        (container,) = mine.all()
        host, config = container.attrs["HostConfig"], container.attrs["Config"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["ReadonlyRootfs"]
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("none", "none", "")
    assert host["Memory"] == host["MemorySwap"] == 1024 * MEBIBYTE
    assert host["PidsLimit"] == (256 if runtime.is_gvisor else 32)
    assert host["Runtime"] == (runtime.name or "runc")
    assert host["NanoCpus"] == 1_000_000_000
    assert not host["Binds"]
    assert not host["Devices"]
    assert not container.attrs["Mounts"]
    assert host["LogConfig"]["Type"] == "none"
    assert host["RestartPolicy"]["Name"] == "no"
    assert 0 not in map(int, config["User"].split(":"))
    assert config["StopSignal"] == "SIGKILL"  # or an engine that is stopped waits for each
    assert host["SecurityOpt"][0] == "no-new-privileges:true"
    assert json.loads(host["SecurityOpt"][1].removeprefix("seccomp="))["defaultAction"] == (
        "SCMP_ACT_ERRNO"
    )


# Every writable file, and every folder in which files can be created. A process's own entries in
# /proc are its own, and the five devices lead nowhere.
WRITABLE = """
import os, stat
def opens(path, flags):
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError:
        return False
    return True
found, seen = [], 0
for folder, folders, files in os.walk("/"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit()]
    if opens(os.path.join(folder, "leak"), os.O_WRONLY | os.O_CREAT):
        found.append(folder)
    for name in files:
        path = os.path.join(folder, name)
        about = os.lstat(path)
        seen += 1
        if not stat.S_ISCHR(about.st_mode) and not stat.S_ISLNK(about.st_mode):
            if opens(path, os.O_WRONLY):
                found.append(path)
[found, seen]
"""


def test_container_can_write_nowhere(inside: Sandbox) -> None:
    found, seen = ask(inside, WRITABLE)
    assert found == []
    assert seen > 500  # it did look


def test_the_devices_are_those_that_lead_nowhere(inside: Sandbox, runtime: Runtime) -> None:
    devices = ask(
        inside,
        "import os, stat\n"
        "[n for n in os.listdir('/dev') if stat.S_ISCHR(os.lstat('/dev/' + n).st_mode)]",
    )
    # gVisor's kernel has a device for file systems, which only a capability could mount.
    of_its_own = {"fuse"} if runtime.is_gvisor else set()
    assert set(devices) == {"full", "null", "random", "tty", "urandom", "zero"} | of_its_own
    with pytest.raises(SandboxError) as raised:
        ask(inside, "open('/dev/tty')")  # there is none
    assert not_none(raised.value.error).type == "OSError"


def test_the_runner_takes_no_write_to_its_files(inside: Sandbox) -> None:
    code = """
import os
taken = []
for folder, _, files in os.walk('/proc/1'):
    for name in files:
        try:
            os.write(os.open(os.path.join(folder, name), os.O_WRONLY), b'0')
            taken.append(os.path.join(folder, name))
        except OSError:
            pass
taken
"""
    assert ask(inside, code) == []


# The content of all kernel files, except the reader's own processes and control groups.
READABLE = """
import os, stat
found = []
for top in ("/proc", "/sys"):
    for folder, folders, files in os.walk(top):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit()]
        if folder == "/sys/fs":
            folders.remove("cgroup")
        for name in files:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode) and open(path, "rb").read(1):
                    found.append(path)
            except OSError:
                pass
found
"""


def test_the_machine_is_not_described(inside: Sandbox, runtime: Runtime) -> None:
    # The number of the last capability, which runc itself reads.
    readable = [] if runtime.is_gvisor else ["/proc/sys/kernel/cap_last_cap"]
    assert ask(inside, READABLE) == readable
    if runtime.is_gvisor:
        assert ask(inside, "import os\nos.listdir('/proc') + os.listdir('/sys')") == []
    else:
        for path in ("cpuinfo", "meminfo", "version", "uptime", "loadavg", "stat", "kallsyms"):
            assert ask(inside, f"open('/proc/{path}').read()") == ""
        for path in ("/sys/devices", "/sys/class", "/sys/kernel", "/proc/sys/net", "/dev/pts"):
            assert ask(inside, f"import os\nos.listdir({path!r})") == []
    assert ask(inside, "open('/etc/hostname').read()") == "sandbox\n"
    assert socket.gethostname() not in str(ask(inside, "import os\n[os.uname()[1], *os.environ]"))


def test_no_other_process_is_there(inside: Sandbox, runtime: Runtime) -> None:
    seen = ask(
        inside, "import os\n[os.getpid(), *(int(n) for n in os.listdir('/proc') if n.isdigit())]"
    )
    assert set(seen[1:]) == (set() if runtime.is_gvisor else {1, seen[0]})
    for name in ("environ", "mem", "maps", "fd/10", "root", "cwd"):
        with pytest.raises(SandboxError) as raised:
            ask(inside, f"open('/proc/1/{name}').read()")
        refused = "FileNotFoundError" if runtime.is_gvisor else "PermissionError"
        assert not_none(raised.value.error).type == refused


def test_no_socket_of_any_family(inside: Sandbox, runtime: Runtime) -> None:
    code = """
import socket
made = []
for family in range(50):
    for kind in (1, 2, 3, 5):
        for make in (socket.socket, socket.socketpair):
            try:
                made.append([str(make(family, kind)), family, kind])
            except PermissionError:
                pass
made
"""
    assert ask(inside, code) == []
    if runtime.is_gvisor:  # there is no /proc to ask
        return
    interfaces = ask(inside, "[line.split(':')[0].strip() for line in open('/proc/self/net/dev')]")
    assert interfaces[2:] == ["lo"]


SIGCHLD = 17
CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND = 0x100, 0x200, 0x400, 0x800
CLONE_VFORK, CLONE_THREAD, CLONE_PARENT = 0x4000, 0x10000, 0x8000
CLONE_NAMESPACES = {
    "NEWTIME": 0x80,
    "NEWNS": 0x20000,
    "NEWCGROUP": 0x2000000,
    "NEWUTS": 0x4000000,
    "NEWIPC": 0x8000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
RUNNER = 1

# Name → number on x86-64, and arguments with which it would have an effect.
FORBIDDEN: dict[str, tuple[int, *tuple[int, ...]]] = {
    "io_uring_setup": (425, 1, 0),
    "ptrace": (101, 16, RUNNER, 0, 0),
    "process_vm_readv": (310, RUNNER, 0, 0, 0, 0, 0),
    "process_vm_writev": (311, RUNNER, 0, 0, 0, 0, 0),
    "pidfd_open": (434, RUNNER, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "kcmp": (312, RUNNER, RUNNER, 0, 0, 0),
    "prlimit64 of the runner": (302, RUNNER, 7, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "fsopen": (430, 0, 0),
    "open_tree": (428, 0, 0, 0),
    "move_mount": (429, 0, 0, 0, 0, 0),
    "mount_setattr": (442, 0, 0, 0, 0, 0),
    "chroot": (161, 0),
    "pivot_root": (155, 0, 0),
    "unshare": (272, CLONE_NAMESPACES["NEWUSER"]),
    "setns": (308, 0, 0),
    "clone3": (435, 0, 0),
    "vfork": (58,),
    **{
        f"clone {name}": (56, flag | SIGCHLD, 0, 0, 0, 0) for name, flag in CLONE_NAMESPACES.items()
    },
    "clone a thread": (
        56,
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD,
        0,
        0,
        0,
        0,
    ),
    "clone sharing memory": (56, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0),
    "clone a sibling": (56, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "keyctl": (250, 0, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "seccomp": (317, 1, 0, 0),
    "prctl(PR_SET_SECCOMP)": (157, 22, 2, 0, 0, 0),
    "prctl(PR_SET_MM)": (157, 35, 1, 0, 0, 0),
    "userfaultfd": (323, 1),
    "perf_event_open": (298, 0, 0, 0, 0, 0),
    "memfd_create": (319, 0, 0),
    "memfd_secret": (447, 0),
    "inotify_init1": (294, 0),
    "fanotify_init": (300, 0, 0),
    "signalfd4": (289, 0, 0, 8, 0),
    "eventfd2": (290, 0, 0),
    "timerfd_create": (283, 1, 0),
    "timer_create": (222, 0, 0, 0),
    "mq_open": (240, 0, 0o102, 0o600, 0),
    "shmget": (29, 0, 4096, 0o1600),
    "semget": (64, 0, 1, 0o1600),
    "msgget": (68, 0, 0o1600),
    "personality": (135, 0x0040000),
    "modify_ldt": (154, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "kexec_file_load": (320, 0, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, 0, 0, 0),
    "delete_module": (176, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "acct": (163, 0),
    "syslog": (103, 10, 0, 0),
    "sysinfo": (99, 0),
    "sysfs": (139, 3, 0, 0),
    "quotactl": (179, 0, 0, 0, 0),
    "settimeofday": (164, 0, 0),
    "clock_settime": (227, 0, 0),
    "adjtimex": (159, 0),
    "sethostname": (170, 0, 0),
    "iopl": (172, 3),
    "ioperm": (173, 0, 1, 1),
    "setuid": (105, 0),
    "setgid": (106, 0),
    "setresuid": (117, 0, 0, 0),
    "setgroups": (116, 0, 0),
    "setfsuid": (122, 0),
    "setsid": (112,),
    "setpgid": (109, 0, 0),
    "capset": (126, 0, 0),
    "chmod": (90, 0, 0),
    "chown": (92, 0, 0, 0),
    "mkdir": (83, 0, 0),
    "unlink": (87, 0),
    "rename": (82, 0, 0),
    "link": (86, 0, 0),
    "symlink": (88, 0, 0),
    "mknod": (133, 0, 0o060600, 0x100),
    "mknodat": (259, 0, 0, 0o060600, 0x100),
    "truncate": (76, 0, 0),
    "utimensat": (280, 0, 0, 0, 0),
    "setxattr": (188, 0, 0, 0, 0, 0),
    "flock": (73, 0, 2),
    "fallocate": (285, 1, 0, 0, 4096),
    "open_by_handle_at": (304, 0, 0, 0),
    "name_to_handle_at": (303, 0, 0, 0, 0, 0),
    "execveat": (322, 0, 0, 0, 0, 0),
    "sched_setaffinity": (203, RUNNER, 8, 0),
    "sched_setscheduler": (144, RUNNER, 0, 0),
    "setpriority": (141, 0, RUNNER, 19),
    "ioprio_set": (251, 1, RUNNER, 0),
    "migrate_pages": (256, RUNNER, 0, 0, 0),
    "move_pages": (279, RUNNER, 0, 0, 0, 0, 0),
    "mbind": (237, 0, 0, 0, 0, 0, 0),
    "mlockall": (151, 3),
    "vmsplice": (278, 0, 0, 0, 0),
    "splice": (275, 0, 0, 0, 0, 0, 0),
    "tee": (276, 0, 0, 0, 0),
    "ioctl(TIOCSTI)": (16, 0, 0x5412, 0),
    "landlock_create_ruleset": (444, 0, 0, 0),
    "tgkill": (234, RUNNER, RUNNER, 9),
    "tkill": (200, RUNNER, 9),
    "rt_sigqueueinfo": (129, RUNNER, 2, 0),
}

CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*map(ctypes.c_long, (number, *arguments)))
    return [result, ctypes.get_errno()]
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
def test_forbidden_system_calls_are_refused(inside: Sandbox) -> None:
    calls = ", ".join(f"{name!r}: call(*{call})" for name, call in FORBIDDEN.items())
    answers = ask(inside, f"{CALLS}\n{{{calls}}}")
    assert answers.keys() == FORBIDDEN.keys()
    refused = [[-1, errno.EPERM], [-1, errno.ENOSYS]]
    assert {name: answer for name, answer in answers.items() if answer not in refused} == {}
    assert ask(inside, f"{CALLS}\nimport os\ncall(39)[0] == os.getpid()")  # it did call


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize("number", [435, 437, 441], ids=["clone3", "openat2", "epoll_pwait2"])
def test_probed_system_call_seems_missing(inside: Sandbox, runtime: Runtime, number: int) -> None:
    refused = errno.EPERM if runtime.is_gvisor else errno.ENOSYS  # gVisor ignores errnoRet
    assert ask(inside, f"{CALLS}\ncall({number}, 0, 0, 0, 0)") == [-1, refused]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
def test_fork_is_stopped_by_its_limit_and_not_by_the_filter(inside: Sandbox) -> None:
    assert ask(inside, f"{CALLS}\ncall(57)") == [-1, errno.EAGAIN]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
def test_another_interface_to_the_kernel_ends_the_caller(inside: Sandbox, runtime: Runtime) -> None:
    if runtime.is_gvisor:  # its kernel has none
        assert ask(inside, f"{CALLS}\ncall(0x40000000 | 39)") == [-1, errno.EPERM]
        return
    with sandbox_error("killed", "SIGSYS", infrastructure=False):
        ask(inside, f"{CALLS}\ncall(0x40000000 | 39)")  # getpid, as 32-bit pointers have it


def test_another_program_is_confined_alike_and_answers_nothing(inside: Sandbox) -> None:
    """The engine needs execve to start the runner; user code gains nothing by it."""
    program = (
        "import ctypes, os, resource\nlibc = ctypes.CDLL(None)\n"
        "print('filter', libc.prctl(21, 0, 0, 0, 0), libc.prctl(39, 0, 0, 0, 0))\n"
        "print('limits', resource.getrlimit(resource.RLIMIT_NPROC))\n"
        "def held(n):\n"
        "    try: return bool(os.fstat(n))\n"
        "    except OSError: return False\n"
        "print('open', [n for n in range(99) if held(n)])"
    )
    code = f"import os, sys\nos.execv(sys.executable, ['python3', '-S', '-c', {program!r}])"
    with sandbox_error("killed", infrastructure=False) as raised:
        ask(inside, code)
    said = raised.value.usage.stdout
    assert "filter 2 1\n" in said
    assert "limits (0, 0)\n" in said
    assert "open [0, 1, 2, 3]\n" in said


def test_no_signal_reaches_the_runner(inside: Sandbox) -> None:
    for target in (1, 0):  # the runner, and its group, which is everybody's
        refused = ask(
            inside,
            "import os\nrefused = 0\nfor number in range(65):\n"
            f"    try: os.kill({target}, number)\n"
            "    except PermissionError: refused += 1\nrefused",
        )
        assert refused == 65
    with pytest.raises(SandboxError, match="No such process"):
        ask(inside, "import os\nos.kill(-1, 9)")  # all others: there are none
    assert ask(inside, "1 + 1") == 2


def test_no_limit_of_the_runner_can_be_changed(inside: Sandbox) -> None:
    """A lowered limit would make every later constraint fail."""
    read = "import resource\nresource.getrlimit(resource.RLIMIT_NPROC)"
    for kind in ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC", "STACK"):
        with pytest.raises(SandboxError) as raised:
            ask(inside, f"import resource\nresource.prlimit(1, resource.RLIMIT_{kind}, (1, 1))")
        assert not_none(raised.value.error).type == "PermissionError"
    assert ask(inside, read) == {"$tuple": [0, 0]}  # of its own it knows


def test_the_profile_names_no_call_twice() -> None:
    profile = json.loads(SECCOMP_PROFILE.read_text())
    names = [
        name for entry in profile["syscalls"] for name in entry["names"] if "args" not in entry
    ]
    assert len(names) == len(set(names))
    conditional = {n for entry in profile["syscalls"] for n in entry["names"] if "args" in entry}
    assert conditional == {"clone", "ioctl", "kill", "prctl", "prlimit64", "tgkill"}
    assert not conditional & set(names)  # or the condition would be none
