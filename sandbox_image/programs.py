"""Programs of ours besides the sandboxes: one request, one answer, each made in a limited fork.

They exchange the frames of the sandboxes (see uac/protocol.py) on standard input and output.
"""

import os
import platform
import resource
import signal
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_image.processes import confinement
from sandbox_image.uac import protocol

CRASHED = 70


def serve(answer: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Say hello, then answer requests until the input ends."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not become an answer
    hello = {
        "hello": protocol.VERSION,
        "python": platform.python_version(),
        **confinement(),
    }
    _write(answers, protocol.encode_frame(hello))
    while (request := protocol.read_frame(requests.read)) is not None:
        _write(answers, protocol.encode_frame(answer(request)))


def answer_in_fork(
    work: Callable[[], Mapping[str, Any]], cpu_seconds: int, memory_bytes: int
) -> dict[str, Any]:
    """Return the result of `work` with the outcome "ok", or which limit it exceeded.

    The work runs in a fork, so exceeding a limit ends only the fork. The result may override the
    outcome.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
            _write(writer, protocol.encode_frame({"outcome": "ok", **work()}))
            os._exit(0)
        except MemoryError:
            _write(writer, protocol.encode_frame({"outcome": "out_of_memory"}))
            os._exit(0)
        finally:
            os._exit(CRASHED)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        written = stream.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return {"outcome": "timeout" if stopped else "crashed"}
    if os.WEXITSTATUS(status) != 0:
        return {"outcome": "crashed"}
    return protocol.decode(written[protocol.HEADER_BYTES :])


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
