"""Start sandbox runners as confined processes; `process.py` runs this file as a script.

    confine.py FOLDER_OF_SANDBOX_IMAGE TIME_ZONES HOST_PID

The script first imports everything that a runner needs, then forks for each sandbox that the host
requests on standard input, which is a socket. A request is one byte, sent along with file
descriptors for the sandbox's three standard streams; the response is the process ID of the
sandbox's watcher, sent along with a pidfd for that process.

Each fork results in two processes, a runner and its watcher. Where the kernel allows it, the runner
has its own namespaces: it sees no network, no other process, and no part of the file system except
the standard library and the time zone database, both read-only. It never runs as root. The watcher,
which is the forked process itself, runs no user code. It waits until the host closes the runner's
standard input, the host dies, or the runner dies, and then kills all of the sandbox's remaining
processes.
"""

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import traceback
import zoneinfo
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

CAPABILITY_VERSION_3 = 0x20080522

NOBODY = 65534

# First byte of a response to the host: whether the sandbox was started.
STARTED = b"+"
FAILED = b"-"

# Mount point of the runner's root file system: a directory that exists on every system, contains no
# libraries and isn't needed by the runner.
ROOT = Path("/proc")

libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Fork a sandbox process for every request from the host, until the host disconnects."""
    package_folder, zones, host_pid = sys.argv[1:]
    host = os.pidfd_open(os.getppid())
    if os.getppid() != int(host_pid):
        raise SystemExit("the host has exited")

    sys.path.insert(0, package_folder)
    from sandbox_image import runner

    sys.path.remove(package_folder)
    runner.prepare()
    zoneinfo.reset_tzpath([zones])
    gc.collect()
    gc.freeze()  # keep the memory pages shared with the forked processes

    requests = socket.socket(fileno=os.dup(0))
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    poller.register(host, select.POLLIN)
    watchers: dict[int, int] = {}  # pidfd of each watcher → its process ID
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        for descriptor in ready & watchers.keys():
            poller.unregister(descriptor)
            os.waitpid(watchers.pop(descriptor), 0)
            os.close(descriptor)
        if host in ready:
            raise SystemExit(0)
        if requests.fileno() in ready:
            request, streams, _, _ = socket.recv_fds(requests, 1, 3)
            if not request:
                raise SystemExit(0)
            try:
                pid = os.fork()
            except OSError as error:
                requests.send(FAILED + os.strerror(error.errno or 0).encode())
            else:
                if pid == 0:
                    requests.close()
                    for descriptor in watchers:
                        os.close(descriptor)
                    start(host, zones, streams)
                watcher = os.pidfd_open(pid)
                watchers[watcher] = pid
                poller.register(watcher, select.POLLIN)
                socket.send_fds(requests, [STARTED + str(pid).encode()], [watcher])
            for descriptor in streams:
                os.close(descriptor)


def start(host: int, zones: str, streams: list[int]) -> NoReturn:
    """In the newly forked process, start a confined runner on these streams and watch it."""
    try:
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        watch(host, zones)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


def watch(host: int, zones: str) -> NoReturn:
    """Start a confined runner on the standard streams, and watch the runner until it exits."""
    from sandbox_image import processes, runner

    isolated = enter_namespaces()
    requests, answers = runner.take_descriptors()
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        os.close(host)
        try:
            if isolated:
                with suppress(OSError):
                    enter_root(zones)
            drop_privileges()
            # Set the death signal only now: dropping privileges would have cleared it.
            processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
            processes.prctl(processes.PR_SET_NO_NEW_PRIVS, 1)
            for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
                resource.setrlimit(kind, (0, 0))
            runner.serve(requests, answers)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)
    os.close(answers)
    runner.silence()
    poller = select.poll()
    poller.register(requests, 0)  # only to detect a hang-up; the data is for the runner to read
    poller.register(host, select.POLLIN)
    poller.register(os.pidfd_open(pid), select.POLLIN)
    poller.poll()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    processes.kill_descendants()
    os._exit(0)


def enter_namespaces() -> bool:
    """Enter new namespaces if the kernel allows it; return whether this succeeded.

    The new PID namespace takes effect at the next fork.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return bool(libc.unshare(NAMESPACES) == 0)
    if libc.unshare(NAMESPACES | CLONE_NEWUSER) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def enter_root(zones: str) -> None:
    """Replace the root with a read-only file system that contains only the required directories.

    The directories keep their paths, so that the running interpreter still finds them.
    """
    needed = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), zones}
    os.umask(0o022)
    mount(None, Path("/"), None, MS_REC | MS_PRIVATE)
    closed = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("tmpfs", ROOT, "tmpfs", closed, "size=64k,mode=755")
    for folder in sorted(needed):
        target = ROOT / folder.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        mount(folder, target, None, MS_BIND | MS_REC)
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount(None, ROOT, None, MS_REMOUNT | MS_RDONLY | closed)
    os.chroot(ROOT)
    os.chdir("/")


def mount(
    source: str | None, target: Path, kind: str | None, flags: int, options: str | None = None
) -> None:
    """Mount a file system; raise OSError if the kernel refuses to."""
    arguments = [text.encode() if text is not None else None for text in (source, kind, options)]
    if libc.mount(arguments[0], bytes(target), arguments[1], flags, arguments[2]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def drop_privileges() -> None:
    """Become the user nobody if running as root, and drop all capabilities."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    main()
