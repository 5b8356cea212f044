"""Child processes that are watched while they run and never outlive this process.

Every child is started with PR_SET_PDEATHSIG: the kernel sends it a signal when the thread that
started it exits, even after kill -9. That is why children must be started from the main thread.
"""

import ctypes
import os
import pwd
import random
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_POLL_SECONDS = 0.05
# How many seconds a process has to become ready. Only a process that hangs takes this long, since
# one that exits during startup is noticed immediately. The limit is long enough for a slow machine
# on which several processes start at the same time.
READY_SECONDS = 240.0


class ProcessFailed(RuntimeError):
    """A child process exited, or did not become ready, when it should have been running."""


def service_user() -> str | None:
    """Return the unprivileged user to run PostgreSQL and Redis as; None if it is our own user.

    PostgreSQL refuses to run as root. "nobody" is only the second choice, because sandboxed code
    runs as that user in development and must not share a uid with the database.
    """
    if os.geteuid() != 0:
        return None
    names = {account.pw_name for account in pwd.getpwall()}
    for name in ("daemon", "nobody"):
        if name in names:
            return name
    raise RuntimeError("started as root, but the system has neither user 'daemon' nor 'nobody'")


def die_with_parent(stop_signal: int) -> Callable[[], None]:
    """Return a `preexec_fn` that makes the kernel send `stop_signal` when the parent dies."""
    parent = os.getpid()

    def in_child() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, stop_signal, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)

    return in_child


def free_port(preferred: int = 0) -> int:
    """Return a port on 127.0.0.1 that nothing is listening on.

    If `preferred` is given, the result is the first free port from that number up.
    """
    # Avoid ephemeral ports: an outgoing connection might grab one in the meantime.
    anywhere = random.SystemRandom().sample(range(20_000, 32_000), 100)
    candidates = range(preferred, min(preferred + 100, 65536)) if preferred else anywhere
    for candidate in candidates:
        with socket.socket() as probe, suppress(OSError):
            # Without this option, a port whose connections linger in TIME_WAIT would look busy.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", candidate))
            port: int = probe.getsockname()[1]
            return port
    raise RuntimeError(f"no free port on 127.0.0.1 between {preferred} and {preferred + 99}")


@contextmanager
def held_port(preferred: int = 0) -> Iterator[int]:
    """Reserve a free port on 127.0.0.1 (`free_port`) so that no other process gets it meanwhile.

    The web server binds a port even if another process has bound it and allows sharing; two servers
    would then each get some of the requests. So the port is bound here, without listening, in a way
    that lets the web server bind it but makes it look busy to anyone looking for a free port.
    """
    while True:
        port = free_port(preferred)
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:  # another process took the port first
                continue
            yield port
            return


class Child(Protocol):
    """A process that was started, such as a Popen; it stays a zombie until `wait` is called."""

    pid: int
    returncode: int | None

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""


def execute(process: "ManagedProcess", log: IO[bytes]) -> Child:
    """Start the command of a process, with its output in `log`."""
    group = pwd.getpwnam(process.user).pw_gid if process.user else None
    return subprocess.Popen(  # noqa: S603  # nosec B603 # our own programs
        process.command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=process.folder,
        env=process.environment,
        user=process.user,
        group=group,
        extra_groups=[] if process.user else None,
        start_new_session=True,
        pass_fds=process.inherited,
        preexec_fn=die_with_parent(process.stop_signal),
    )


@dataclass
class ManagedProcess:
    """One child process: how to start it, when it is ready, how to stop it.

    `ready` is called repeatedly after the process has been started; an exception means "not yet".
    Output is appended to `log_path`. `inherited` lists lock file descriptors, which the child keeps
    open. `begin` starts it: by default, as a program.
    """

    name: str
    command: Sequence[str]
    log_path: Path
    ready: Callable[["ManagedProcess"], bool]
    environment: Mapping[str, str]
    folder: Path
    user: str | None = None
    stop_signal: int = signal.SIGTERM
    inherited: tuple[int, ...] = ()
    begin: Callable[["ManagedProcess", IO[bytes]], Child] = execute
    wanted: bool = field(default=False, init=False)
    _child: Child | None = field(default=None, init=False)
    # Readable once the process has ended.
    _end: int = field(default=-1, init=False)
    _log_offset: int = field(default=0, init=False)

    @property
    def pid(self) -> int:
        """The pid of the most recent process; raises ProcessFailed if it was never started."""
        if self._child is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._child.pid

    @property
    def running(self) -> bool:
        """True while the process is alive."""
        if self._child is None or self._child.returncode is not None:
            return False
        # This leaves a zombie, which keeps the process group id from being reused.
        return not has_ended(self._end, wait=False)

    @property
    def died(self) -> bool:
        """True if the process has exited although nobody stopped it."""
        return self.wanted and not self.running

    def launch(self) -> None:
        """Start the process without waiting for it to become ready."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"start {self.name} from the main thread: it exits when the thread that started it"
                " exits"
            )
        self._reap()
        with self.log_path.open("ab") as log:
            self._log_offset = log.tell()
            self._child = self.begin(self, log)
        self._end = os.pidfd_open(self._child.pid)
        self.wanted = True

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until the process is ready, or raise ProcessFailed with the end of its log."""
        deadline = time.monotonic() + seconds
        while self.running:
            with suppress(Exception):
                if self.ready(self):
                    return
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} was not ready within {seconds:g} s.\n{self.log_tail()}"
                )
            time.sleep(_POLL_SECONDS)
        raise ProcessFailed(f"{self.name} exited during startup.\n{self.log_tail()}")

    def start(self) -> None:
        """Start the process and wait until it is ready; raise ProcessFailed if it fails."""
        self.launch()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def run(self) -> None:
        """Start the process, and wait for its end; raise ProcessFailed unless it succeeds."""
        self.launch()
        self.wanted = False
        try:
            has_ended(self._end, wait=True)
        finally:
            code = self._reap()
        if code:
            raise ProcessFailed(f"{self.name} failed.\n{self.log_tail()}")

    def ask_to_stop(self) -> None:
        """Send the stop signal once, without waiting; `stop` waits."""
        if self.wanted and self.running:
            os.kill(self.pid, self.stop_signal)
        self.wanted = False

    def stop(self, patience: float = 20) -> None:
        """Stop the process, or kill it after `patience` seconds; kill its children either way."""
        self.ask_to_stop()
        deadline = time.monotonic() + patience
        while self.running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._reap()

    def kill(self) -> None:
        """Kill the process and its children immediately, as if the machine had crashed."""
        self.wanted = False
        self._reap()

    def output(self) -> str:
        """Return the process's output since it was last started."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_offset)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the process's output, preceded by the log's path."""
        tail = "\n".join(f"  | {line}" for line in self.output().splitlines()[-lines:])
        return f"End of {self.log_path}:\n{tail or '  | (empty)'}"

    def _reap(self) -> int | None:
        """Kill what is left of the process and its children; return its exit code."""
        if self._child is None or self._child.returncode is not None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        code = self._child.wait()
        os.close(self._end)
        return code


def has_ended(descriptor: int, *, wait: bool) -> bool:
    """Return whether the process of a pidfd has ended, at once or when it has."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if wait else 0))
