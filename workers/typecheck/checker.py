"""Checks types: in a container that lives for one check, or in a process for development.

mypy is a large program that reads what a user's words brought about, so it is confined as the
sandboxes are, by the same template. It is given the files of one request, and nothing is kept.
"""

import functools
import io
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
from workers.metrics import measured
from workers.sandbox.docker import ContainerChannel, check_confined, image_id
from workers.sandbox.interface import SandboxError, Shape
from workers.sandbox.runner import runner_name
from workers.typecheck.image import typecheck_image_name

# More than the check itself may take, by its limit of CPU time.
DEADLINE_SECONDS = 60.0
MAX_ANSWER_BYTES = 1024 * 1024
SHAPE = Shape(memory_mib=1024, pids=8)
MODULE = f"{typecheck_image.__name__}.checker"

_STOPPED = {
    "timeout": "checking the types takes too long",
    "out_of_memory": "checking the types takes too much memory",
    "crashed": "the type checker fails on this code",
}


@dataclass(frozen=True, order=True)
class TypeFault:
    """One error of the type checker, in its own words; `code` is mypy's name for the kind."""

    path: str
    line: int
    code: str
    message: str


@measured("types")
def check_types(files: Mapping[str, str]) -> list[TypeFault]:
    """Return what mypy --strict says of the files of a project, by path and line.

    Raises SandboxError: with `infrastructure` where the checker could not be had or broke, else
    where the code exceeds what it may take.
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
                f"{_STOPPED[outcome]}: write it in simpler terms",
            )
        return sorted(_error(found) for found in answer["findings"])
    except (protocol.ProtocolError, KeyError, TypeError) as error:
        raise SandboxError(
            "protocol_error", f"the type checker's answer: {error!r}", infrastructure=True
        ) from error
    except (EOFError, TimeoutError, OSError) as error:
        raise SandboxError(
            "killed", f"the type checker gave no answer: {error!r}", infrastructure=True
        ) from error


def _error(found: Mapping[str, Any]) -> TypeFault:
    path, line, code, message = (found[name] for name in ("path", "line", "code", "message"))
    if not all(isinstance(text, str) for text in (path, code, message)) or type(line) is not int:
        raise TypeError(f"{found!r:.200} is no error of a type checker")
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
    try:
        finished = _run(_cache(), stdin=request)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    read = io.BytesIO(finished).read
    _read(read)
    return _read(read)


def _read(read: Callable[[int], bytes]) -> dict[str, Any]:
    message = protocol.read_frame(read, MAX_ANSWER_BYTES)
    if message is None:
        raise EOFError
    return message


_preparing = threading.Lock()


def _cache() -> str:
    """What mypy knows of the standard library, of this process's own: nobody else writes to it."""
    with _preparing:
        folder = _prepared()
    return folder.name


@functools.cache
def _prepared() -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="uac-typecheck-")
    _run(folder.name, "--prepare")
    return folder


def _run(*arguments: str, stdin: bytes = b"") -> bytes:
    finished = subprocess.run(  # noqa: S603  # nosec B603 # our own program
        [sys.executable, "-s", "-B", "-m", MODULE, *arguments],
        input=stdin,
        capture_output=True,
        cwd=Path(typecheck_image.__path__[0]).parent,
        env={},
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        raise OSError(finished.stderr.decode(errors="replace").strip()[-500:])
    return finished.stdout
