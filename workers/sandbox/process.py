"""The process runner, for development: a sandbox is an ordinary process confined by `confine.py`.

It needs nothing but Linux. Its sandboxes share the host's kernel interface, memory and user ids
and, where the kernel does not allow namespaces, also the network and all readable files. So it is
meant for demonstrations and tests; in production, the server refuses to start with it.
"""

import atexit
import compileall
import functools
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zoneinfo
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import sandbox_image
from workers.sandbox import confine
from workers.sandbox.client import HELLO_BYTES, Sandbox
from workers.sandbox.exchange import read_message
from workers.sandbox.image import sources_digest
from workers.sandbox.interface import Program
from workers.sandbox.limits import DEFAULT_SHAPE, Shape
from workers.sandbox.results import SandboxError

KEEPS_SANDBOXES = False  # for development: nothing is kept, so nothing has to be cleaned up

PACKAGE = Path(sandbox_image.__file__).parent
CLOSE_SECONDS = 5.0
# Seconds that a program may take to prepare its cache.
PREPARE_SECONDS = 60.0
# Seconds that a starter has to respond: a machine slower than that couldn't run a sandbox either.
START_SECONDS = 60.0
READ_BYTES = 1024 * 1024


def start(*, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
    """Start a confined process; raise SandboxError if it does not start.

    Closing the sandbox terminates all of its processes. Only the per-process memory limit in
    `shape` is used.
    """
    try:
        channel = ProcessChannel(hash_seed)
    except OSError as error:
        raise SandboxError.unavailable(f"the sandbox did not start: {error}") from error
    try:
        return Sandbox(
            channel,
            runner_name="process",
            image_digest=image_digest(),
            hash_seed=hash_seed,
            memory_bytes=shape.process_memory_bytes,
        )
    except BaseException as error:
        channel.close()
        if isinstance(error, SandboxError):
            raise error.at_start(channel.last_words) from error
        raise


@contextmanager
def open_channel(program: Program, shape: Shape, deadline: float) -> Iterator["ProgramChannel"]:
    """Take an idle process of the program, or start one; see `Runner.open_channel`.

    The process is kept for the next caller, because importing its modules takes longer than a
    request, which it serves in a fork. It is not confined, and `shape` is not used.
    """
    channel = _idle_channel(program.module)
    if channel is None:
        channel = ProgramChannel(program.module)
        try:
            read_message(channel, HELLO_BYTES, deadline)
        except BaseException:
            channel.close()
            raise
    try:
        yield channel
    except BaseException:
        channel.close()
        raise
    _idle.append(channel)


@functools.cache
def image_digest() -> str:
    """Return a digest of this interpreter's version and of the files in `sandbox_image`."""
    digest = hashlib.sha256(f"{sys.version} {sources_digest()}".encode())
    return f"process:{digest.hexdigest()[:32]}"


def problem() -> str:
    """See `Runner.problem`."""
    return ""


def reap() -> int:
    """Do nothing: a process-based sandbox exits with the worker that opened it."""
    return 0


class Starter:
    """The process from which all sandboxes with the same hash seed are forked (`confine.py`).

    It imports the modules common to all sandboxes once, and exits when this process does.
    """

    def __init__(self, hash_seed: int) -> None:
        """Start the process; the first sandbox may be requested while it is still importing."""
        _precompile()
        self._socket, theirs = socket.socketpair()
        try:
            # Don't use preexec_fn, which isn't safe with threads, or a death signal, which would be
            # sent as soon as the thread that happened to open the sandbox ends. Instead, confine.py
            # itself watches this process.
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603 # our own runner
                [
                    sys.executable,
                    *("-s", "-S", "-P", "-B"),  # -I would also make Python ignore the hash seed
                    str(Path(__file__).with_name("confine.py")),
                    str(PACKAGE.parent),
                    str(_time_zones()),
                    str(os.getpid()),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={"PYTHONHASHSEED": str(hash_seed)},
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.settimeout(START_SECONDS)
        self._asking = threading.Lock()

    def fork(self, streams: Sequence[int]) -> tuple[int, int]:
        """Fork a sandbox on these standard streams; return the watcher's process id and descriptor.

        Raises OSError if the fork fails.
        """
        answer = b""
        with self._asking, suppress(ConnectionError):
            socket.send_fds(self._socket, [b"?"], streams)
            answer, descriptors, _, _ = socket.recv_fds(self._socket, 200, 1)
        if not answer:
            last_words = self._last_words()
            why = "the process that forks sandboxes has exited"
            raise ConnectionResetError(f"{why}; it said: {last_words}" if last_words else why)
        if answer[:1] != confine.STARTED:
            raise OSError(answer[1:].decode(errors="replace"))
        return int(answer[1:]), descriptors[0]

    def close(self) -> None:
        """Terminate the process; sandboxes already forked from it keep running."""
        self._socket.close()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        self._process.kill()
        assert self._process.stderr is not None
        return (self._process.stderr.read() or b"").decode(errors="replace").strip()[-1000:]


_starters: dict[int, Starter] = {}  # hash seed → its starter
_starting = threading.Lock()
# A forked process must not use its parent's starters.
os.register_at_fork(after_in_child=_starters.clear)


def _fork(hash_seed: int, streams: Sequence[int]) -> tuple[int, int]:
    """Fork a sandbox, from a new starter if the old one has exited; raise OSError on failure."""
    with _starting:
        is_running = hash_seed in _starters
        starter = _starters.get(hash_seed) or _starters.setdefault(hash_seed, Starter(hash_seed))
    try:
        return starter.fork(streams)
    except (ConnectionError, TimeoutError):
        with _starting:
            if _starters.get(hash_seed) is starter:
                del _starters[hash_seed]
        starter.close()
        if not is_running:
            raise
        return _fork(hash_seed, streams)


class ProcessChannel:
    """A confined runner and its pipes; the runner exits when this process dies, even by kill -9."""

    def __init__(self, hash_seed: int) -> None:
        requests, self._requests = _pipe_to()
        self._answers, answers = _pipe_from()
        self._errors, errors = _pipe_from()
        try:
            self.pid, self._watcher = _fork(hash_seed, (requests, answers, errors))
        except BaseException:
            for pipe in (self._requests, self._answers, self._errors):
                pipe.close()
            raise
        finally:
            for descriptor in (requests, answers, errors):
                os.close(descriptor)
        self._closed = False
        self.last_words = ""  # set by `close`: errors that the runner printed

    def send(self, data: bytes, deadline: float) -> None:
        """See `Channel.send`."""
        _send(self._requests.fileno(), data, deadline)

    def receive(self, count: int, deadline: float) -> bytes:
        """See `Channel.receive`."""
        return _receive(self._answers.fileno(), count, deadline)

    def has_ended(self) -> bool:
        """See `Channel.has_ended`."""
        return self._closed or _poll(self._watcher, select.POLLIN, 0)

    def close(self) -> None:
        """See `Channel.close`."""
        if self._closed:
            return
        self._closed = True
        self._requests.close()  # this makes the watcher kill the runner
        self._answers.close()
        if not _poll(self._watcher, select.POLLIN, CLOSE_SECONDS):
            # The runner dies with its watcher, and all its processes with the runner.
            os.killpg(self.pid, signal.SIGKILL)
            _poll(self._watcher, select.POLLIN, CLOSE_SECONDS)
        os.close(self._watcher)
        self.last_words = (self._errors.read() or b"").decode(errors="replace").strip()[-1000:]
        self._errors.close()


class ProgramChannel:
    """A process of one of our programs, and its pipes; it exits when its input ends."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._process = _start_program(module, _prepared_cache(module), errors=subprocess.DEVNULL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        for pipe in (self._requests, self._answers):
            os.set_blocking(pipe.fileno(), False)

    def send(self, data: bytes, deadline: float) -> None:
        """See `Channel.send`."""
        _send(self._requests.fileno(), data, deadline)

    def receive(self, count: int, deadline: float) -> bytes:
        """See `Channel.receive`."""
        return _receive(self._answers.fileno(), count, deadline)

    def has_ended(self) -> bool:
        """See `Channel.has_ended`."""
        return self._process.poll() is not None

    def close(self) -> None:
        """See `Channel.close`."""
        self._process.kill()
        self._requests.close()
        self._answers.close()
        self._process.wait()


# Appending and removing are atomic, so each thread gets a process of its own.
_idle: list[ProgramChannel] = []


def _idle_channel(module: str) -> ProgramChannel | None:
    for channel in list(_idle):
        if channel.module == module:
            with suppress(ValueError):  # another thread was faster
                _idle.remove(channel)
                if not channel.has_ended():
                    return channel
                channel.close()
    return None


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().close()


_preparing = threading.Lock()


def _prepared_cache(module: str) -> str:
    """Return the folder with the program's cache, to which nothing else writes."""
    with _preparing:
        return _prepare_cache(module).name


@functools.cache
def _prepare_cache(module: str) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="uac-cache-")
    with _start_program(module, folder.name, "--prepare", errors=subprocess.PIPE) as preparing:
        try:
            _, errors = preparing.communicate(timeout=PREPARE_SECONDS)
        except subprocess.TimeoutExpired:
            preparing.kill()
            raise TimeoutError(f"preparing the cache of {module} took too long") from None
    if preparing.returncode != 0:
        raise OSError(errors.decode(errors="replace").strip()[-500:])
    return folder


def _start_program(module: str, *arguments: str, errors: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # nosec B603 # our own program
        [sys.executable, "-s", "-B", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=0,
        cwd=PACKAGE.parent,
        env={},
    )


@functools.cache
def _precompile() -> None:
    """Write the runner's bytecode: sandboxes use it but never write it, since they run with -B.

    If the directory is read-only, sandboxes start from source, which takes 40 ms more CPU time.
    """
    compileall.compile_dir(PACKAGE, quiet=2)


def _pipe_to() -> tuple[int, IO[bytes]]:
    """Return a pipe: the end that the sandbox reads from, and our non-blocking end to write to."""
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    return theirs, os.fdopen(ours, "wb", buffering=0)


def _pipe_from() -> tuple[IO[bytes], int]:
    """Return a pipe: our non-blocking end to read from, and the end that the sandbox writes to."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return os.fdopen(ours, "rb", buffering=0), theirs


def _send(descriptor: int, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        _wait(descriptor, select.POLLOUT, deadline)
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            raise EOFError from None


def _receive(descriptor: int, count: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        _wait(descriptor, select.POLLIN, deadline)
        data = os.read(descriptor, min(count - len(received), READ_BYTES))
        if not data:
            break
        received += data
    return bytes(received)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    if not _poll(descriptor, event, max(0.0, deadline - time.monotonic())):
        raise TimeoutError


def _poll(descriptor: int, event: int, seconds: float) -> bool:
    """Return whether the event occurs within `seconds`.

    A process descriptor becomes readable when the process exits.
    """
    poller = select.poll()
    poller.register(descriptor, event)
    return bool(poller.poll(seconds * 1000))


def _time_zones() -> Path:
    """Return the time zone database's directory: the system's, or else the tzdata package's."""
    for folder in zoneinfo.TZPATH:
        if Path(folder).is_dir():
            return Path(folder)
    package = find_spec("tzdata")
    if package is None or package.origin is None:
        raise RuntimeError("there is no time zone database: install tzdata")
    return Path(package.origin).parent / "zoneinfo"
