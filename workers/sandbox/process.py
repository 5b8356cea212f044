"""The process runner: a sandbox for development, an ordinary process confined by `confine.py`.

It needs Linux and nothing else. It shares the host's kernel interface, memory and user ids, and
where the kernel allows no namespaces it also shares the network and a readable file system: it is
for demonstrations and tests, production settings refuse it.
"""

import compileall
import functools
import hashlib
import os
import select
import signal
import subprocess
import sys
import time
import zoneinfo
from contextlib import AbstractContextManager, closing
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast

import sandbox_image
from workers.sandbox.client import ChannelSandbox
from workers.sandbox.image import sources_digest
from workers.sandbox.interface import DEFAULT_SHAPE, Sandbox, SandboxError, Shape

PACKAGE = Path(sandbox_image.__file__).parent
CLOSE_SECONDS = 5.0
READ_BYTES = 1024 * 1024


def start(*, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> ChannelSandbox:
    """Start a confined process; SandboxError when it does not start.

    Closing the sandbox ends it with all its processes. Of the shape, it has nothing but the memory
    that follows from it for each process.
    """
    try:
        channel = ProcessChannel(hash_seed)
    except OSError as error:
        raise SandboxError(
            "killed", f"the sandbox did not start: {error}", infrastructure=True
        ) from error
    try:
        return ChannelSandbox(
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


def open_sandbox(
    *, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE
) -> AbstractContextManager[Sandbox]:
    """Start a confined process, gone with all its processes after the context. SandboxError."""
    return closing(start(hash_seed=hash_seed, shape=shape))


@functools.cache
def image_digest() -> str:
    """Return the digest of this interpreter and the files of `sandbox_image`."""
    digest = hashlib.sha256(f"{sys.version} {sources_digest()}".encode())
    return f"process:{digest.hexdigest()[:32]}"


def reap() -> int:
    """Nothing: a sandbox ends with the worker that opened it."""
    return 0


class ProcessChannel:
    """A confined runner and the pipes to it. Nothing is left when this process dies, even by -9."""

    def __init__(self, hash_seed: int) -> None:
        _precompile()
        # No preexec_fn, which is not safe beside threads, and no death signal from here, which
        # would come when the thread ends that happened to open the sandbox: confine.py does both
        # jobs from within.
        self._process = subprocess.Popen(  # noqa: S603  # nosec B603 # our own runner
            [
                sys.executable,
                *("-s", "-S", "-P", "-B"),  # -I would also ignore the seed
                str(Path(__file__).with_name("confine.py")),
                str(PACKAGE.parent),
                str(_time_zones()),
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONHASHSEED": str(hash_seed)},
            start_new_session=True,
        )
        pipes = self._process.stdin, self._process.stdout, self._process.stderr
        assert all(pipes)
        self._requests, self._answers, self._errors = cast("tuple[IO[bytes], ...]", pipes)
        for pipe in (self._requests, self._answers, self._errors):
            os.set_blocking(pipe.fileno(), False)
        self._closed = False
        self.last_words = ""  # once closed: what a runner that did not start wrote about it

    @property
    def pid(self) -> int:
        """The process that watches the runner, and leads its session."""
        return self._process.pid

    def send(self, data: bytes, deadline: float) -> None:
        """Write all of it; EOFError if the runner is gone, TimeoutError past the deadline."""
        view = memoryview(data)
        while view:
            _wait(self._requests.fileno(), select.POLLOUT, deadline)
            try:
                view = view[os.write(self._requests.fileno(), view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EOFError from None

    def receive(self, count: int, deadline: float) -> bytes:
        """So many bytes, fewer only at the end of the stream; TimeoutError past the deadline."""
        received = bytearray()
        while len(received) < count:
            _wait(self._answers.fileno(), select.POLLIN, deadline)
            data = os.read(self._answers.fileno(), min(count - len(received), READ_BYTES))
            if not data:
                break
            received += data
        return bytes(received)

    def has_ended(self) -> bool:
        """Whether the runner has left."""
        return self._closed or self._process.poll() is not None

    def close(self) -> None:
        """Destroy the sandbox; may be called again."""
        if self._closed:
            return
        self._closed = True
        self._requests.close()  # at which the watcher kills the runner
        self._answers.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            # The runner dies with its watcher, and all its processes with the runner.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.last_words = (self._errors.read() or b"").decode(errors="replace").strip()[-1000:]
        self._errors.close()


@functools.cache
def _precompile() -> None:
    """Write the runner's bytecode, which each sandbox reads and, run with -B, never writes.

    Where the folder is read-only the sandboxes start from source, 40 ms of CPU later.
    """
    compileall.compile_dir(PACKAGE, quiet=2)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(descriptor, event)
    if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _time_zones() -> Path:
    """The folder with the time zone database: the system's, else that of the package tzdata."""
    for folder in zoneinfo.TZPATH:
        if Path(folder).is_dir():
            return Path(folder)
    package = find_spec("tzdata")
    if package is None or package.origin is None:
        raise RuntimeError("there is no time zone database: install tzdata")
    return Path(package.origin).parent / "zoneinfo"
