"""Check types, in a container that lives for one check or, for development, in a process.

mypy is a large program that reads code derived from users' texts, so it is confined like the
sandboxes, with the same template. Each container gets the files of one request, and nothing is kept
afterwards. In development, the process stays alive and forks for each check, because importing mypy
takes longer than a check.
"""

import atexit
import functools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

import typecheck_image
from sandbox_image.uac import protocol
from workers.metrics.sandbox_metrics import measured
from workers.sandbox.docker import ContainerChannel, check_confined, image_id
from workers.sandbox.interface import SandboxError
from workers.sandbox.limits import Shape
from workers.sandbox.runner import runner_name
from workers.typecheck.image import typecheck_image_name

# Seconds to wait for a response: more than a check may take under its own CPU time limit.
DEADLINE_SECONDS = 60.0
MAX_ANSWER_BYTES = 1024 * 1024
SHAPE = Shape(memory_mib=1024, pids=8)
MODULE = f"{typecheck_image.__name__}.checker"

_STOPPED = {
    "timeout": "type checking takes too long",
    "out_of_memory": "type checking takes too much memory",
    "crashed": "the type checker crashes on this code",
}


@dataclass(frozen=True, order=True)
class TypeFault:
    """An error that the type checker found; `code` is mypy's code for this kind of error."""

    path: str
    line: int
    code: str
    message: str


@measured("types")
def check_types(files: Mapping[str, str]) -> list[TypeFault]:
    """Return the errors that `mypy --strict` finds in a project's files, ordered by path and line.

    Raises SandboxError: with `infrastructure` set if the checker was unavailable or failed, without
    it if the code exceeds a limit.
    """
    try:
        request = protocol.encode_frame({"files": dict(files)})
    except protocol.FrameTooLargeError as error:
        raise SandboxError("input_limit", f"the code to check is too large: {error}") from None
    exchange = _in_container if runner_name() == "docker" else _in_process
    try:
        answer = exchange(request)
        outcome = answer["outcome"]
        if outcome in _STOPPED:
            raise SandboxError(
                "timeout" if outcome == "crashed" else outcome,
                f"{_STOPPED[outcome]}: simplify the code",
            )
        return sorted(_error(found) for found in answer["findings"])
    except (protocol.ProtocolError, KeyError, TypeError) as error:
        raise SandboxError(
            "protocol_error",
            f"the type checker's response is invalid: {error!r}",
            infrastructure=True,
        ) from error
    except (EOFError, TimeoutError, OSError) as error:
        raise SandboxError.unavailable(f"the type checker did not respond: {error!r}") from error


def _error(found: Mapping[str, Any]) -> TypeFault:
    path, line, code, message = (found[name] for name in ("path", "line", "code", "message"))
    if not all(isinstance(text, str) for text in (path, code, message)) or type(line) is not int:
        raise TypeError(f"{found!r:.200} is not an error from a type checker")
    return TypeFault(path, line, code, message)


def _in_container(request: bytes) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    image = image_id(
        settings.UAC_TYPECHECK_IMAGE or typecheck_image_name(), setting="UAC_TYPECHECK_IMAGE"
    )
    with closing(ContainerChannel(image, 0, SHAPE)) as channel:
        channel.start()
        read = functools.partial(channel.receive, deadline=deadline)
        check_confined(_read(read))
        channel.send(request, deadline)
        return _read(read)


def _in_process(request: bytes) -> dict[str, Any]:
    checker = _idle_checker() or _CheckerProcess(_cache())
    try:
        answer = checker.exchange(request)
    except BaseException:
        checker.close()
        raise
    _idle.append(checker)
    return answer


class _CheckerProcess:
    """A type checker process; it serves one request at a time, and exits when its input ends."""

    def __init__(self, cache: str) -> None:
        self._process = _start(cache, errors=subprocess.DEVNULL)
        try:
            self._receive()  # the checker's hello
        except BaseException:
            self.close()
            raise

    def exchange(self, request: bytes) -> dict[str, Any]:
        """Return the response to an encoded request; raise EOFError if the process exits first."""
        assert self._process.stdin is not None
        # Kill a checker that hangs, which also ends the wait for its response.
        timer = threading.Timer(DEADLINE_SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            return self._receive()
        finally:
            timer.cancel()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return _read(self._process.stdout.read)


# Appending and popping are atomic, so each thread gets its own checker.
_idle: list[_CheckerProcess] = []


def _idle_checker() -> _CheckerProcess | None:
    while True:
        try:
            checker = _idle.pop()
        except IndexError:
            return None
        if checker.runs:
            return checker


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().close()


def _read(read: Callable[[int], bytes]) -> dict[str, Any]:
    message = protocol.read_frame(read, MAX_ANSWER_BYTES)
    if message is None:
        raise EOFError
    return message


_preparing = threading.Lock()


def _cache() -> str:
    """Return the directory of this process's own mypy cache for the standard library.

    Nothing else writes to this directory.
    """
    with _preparing:
        folder = _prepared()
    return folder.name


@functools.cache
def _prepared() -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="uac-typecheck-")
    with _start(folder.name, "--prepare", errors=subprocess.PIPE) as preparing:
        try:
            _, errors = preparing.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            preparing.kill()
            raise TimeoutError("preparing the type checker's cache took too long") from None
    if preparing.returncode != 0:
        raise OSError(errors.decode(errors="replace").strip()[-500:])
    return folder


def _start(*arguments: str, errors: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # nosec B603 # our own program
        [sys.executable, "-s", "-B", "-m", MODULE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=Path(typecheck_image.__path__[0]).parent,
        env={},
    )
