"""Check types, in a confined program besides the sandboxes.

mypy is a large program that reads code derived from users' texts, so it is confined like the
sandboxes, by the same runner. A container gets the files of one request, and nothing is kept
afterwards.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typecheck_image
from sandbox_image.uac import protocol
from workers.sandbox.exchange import read_message
from workers.sandbox.interface import Program
from workers.sandbox.limits import DEFAULT_SHAPE
from workers.sandbox.metrics import measured
from workers.sandbox.program_images import typecheck_image_name
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import configured_runner

# Seconds to wait for a response: more than a check may take under its own CPU time limit.
DEADLINE_SECONDS = 60.0
MAX_ANSWER_BYTES = 1024 * 1024
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
    program = Program(typecheck_image_name(), "UAC_TYPECHECK_IMAGE", MODULE)
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        with configured_runner().open_channel(program, DEFAULT_SHAPE, deadline) as channel:
            channel.send(request, deadline)
            answer = read_message(channel, MAX_ANSWER_BYTES, deadline)
        outcome = answer["outcome"]
        if outcome in _STOPPED:
            raise SandboxError(
                "timeout" if outcome == "crashed" else outcome,
                f"{_STOPPED[outcome]}: simplify the code",
            )
        return sorted(_error(fault) for fault in answer["findings"])
    except (protocol.ProtocolError, KeyError, TypeError) as error:
        raise SandboxError(
            "protocol_error",
            f"the type checker's response is invalid: {error!r}",
            infrastructure=True,
        ) from error
    except (EOFError, TimeoutError, OSError) as error:
        raise SandboxError.unavailable(f"the type checker did not respond: {error!r}") from error


def _error(fault: Mapping[str, Any]) -> TypeFault:
    path, line, code, message = (fault[name] for name in ("path", "line", "code", "message"))
    if not all(isinstance(text, str) for text in (path, code, message)) or type(line) is not int:
        raise TypeError(f"{fault!r:.200} is not an error from a type checker")
    return TypeFault(path, line, code, message)
