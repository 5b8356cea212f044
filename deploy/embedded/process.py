"""Child processes that are watched while they run and never outlive this process.

Every child is started with PR_SET_PDEATHSIG: the kernel sends it a signal when the thread that
started it exits, even after kill -9. That is why children must be started from the main thread.
"""

import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

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
    known = {account.pw_name for account in pwd.getpwall()}
    for name in ("daemon", "nobody"):
        if name in known:
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


@dataclass
class ManagedProcess:
    """One child process: how to start it, when it is ready, how to stop it.

    `ready` is called repeatedly after the process has been started; an exception means "not yet".
    Output is appended to `log_path`. `inherited` lists lock file descriptors, which the child keeps
    open.
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
    wanted: bool = field(default=False, init=False)
    _popen: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_offset: int = field(default=0, init=False)

    @property
    def pid(self) -> int:
        """The pid of the most recent process; raises ProcessFailed if it was never started."""
        if self._popen is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True while the process is alive."""
        if self._popen is None or self._popen.returncode is not None:
            return False
        # WNOWAIT leaves a zombie, which keeps the process group id from being reused.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._popen.pid, look) is None

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
        group = pwd.getpwnam(self.user).pw_gid if self.user else None
        with self.log_path.open("ab") as log:
            self._log_offset = log.tell()
            self._popen = subprocess.Popen(  # noqa: S603  # nosec B603 # our own programs
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                user=self.user,
                group=group,
                extra_groups=[] if self.user else None,
                start_new_session=True,
                pass_fds=self.inherited,
                preexec_fn=die_with_parent(self.stop_signal),
            )
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

    def _reap(self) -> None:
        if self._popen is None or self._popen.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
