"""The forked child that runs user code: its limits, and the answer that it writes."""

import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from .errors import describe
from .processes import PR_SET_PDEATHSIG, prctl
from .values import ResultLimitError

RESULT_DESCRIPTOR = 3
RESULT_SLACK = 64 * 1024  # for what surrounds the value
CHILD_FAILED = 70
CHILD_OUT_OF_MEMORY = 71


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may use, as the host sent it."""

    wall_seconds: float
    total_seconds: float
    cpu_seconds: int
    memory_bytes: int
    stdout_kept_bytes: int
    stdout_produced_bytes: int
    result_bytes: int
    result_depth: int

    @classmethod
    def of(cls, values: object) -> "Limits":
        """From a request; ValueError unless all of them are there, as positive numbers."""
        names = {one.name: one.type for one in fields(cls)}
        if not isinstance(values, dict) or values.keys() != names.keys():
            raise ValueError(f"limits are {', '.join(sorted(names))}")
        for name, value in values.items():
            whole = names[name] is int
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(f"the limit {name} is no number")
            if value <= 0:
                raise ValueError(f"the limit {name} is not above zero")
        return cls(**values)


def fork(
    item: str,
    work: Callable[[str], Any],
    limits: Limits,
    user_files: Container[str],
) -> tuple[int, int, int]:
    """Start a child that answers one item with one line; return its id and its two pipes.

    The pipes are the reading ends of its answer and of what it prints.
    """
    results_read, results_write = os.pipe()
    stdout_read, stdout_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _confine(parent, results_write, stdout_write, limits)
            answer = _answer(item, work, limits, user_files)
            with suppress(Exception):  # user code may have closed or replaced it
                sys.stdout.flush()
            _write(RESULT_DESCRIPTOR, answer)
            os._exit(0)
        except MemoryError:  # so little is left that even saying so failed
            os._exit(CHILD_OUT_OF_MEMORY)
        finally:
            os._exit(CHILD_FAILED)
    os.close(results_write)
    os.close(stdout_write)
    return pid, results_read, stdout_read


def _confine(parent: int, results: int, stdout: int, limits: Limits) -> None:
    """Make this child what user code may run in: it holds its two pipes and nothing else."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(CHILD_FAILED)
    # Standard output first: the descriptor of the results may be its place's neighbour.
    os.dup2(stdout, 1)
    os.dup2(stdout, 2)
    os.dup2(results, RESULT_DESCRIPTOR)
    os.closerange(RESULT_DESCRIPTOR + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for kind, soft, hard in (
        # At the soft limit comes SIGXCPU, which tells what happened; at the hard one SIGKILL.
        (resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1),
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
        # No process and no thread: none is needed, and what cannot fork leaves nothing behind.
        # Zero also does not depend on what others run under the same user id.
        (resource.RLIMIT_NPROC, 0, 0),
    ):
        allowed = resource.getrlimit(kind)[1]
        if allowed == resource.RLIM_INFINITY:
            allowed = hard
        resource.setrlimit(kind, (min(soft, allowed), min(hard, allowed)))
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="backslashreplace"
    )


def _answer(
    item: str, work: Callable[[str], Any], limits: Limits, user_files: Container[str]
) -> bytes:
    """Do the work of the item and return its answer as a line, whatever user code raises."""
    message: dict[str, Any]
    try:
        message = {"outcome": "ok", "result": work(item)}
    except MemoryError as error:
        error.__traceback__ = None  # its frames hold what filled the memory
        message = out_of_memory(limits)
    except ResultLimitError as error:
        message = failure("result_limit", str(error))
    except SystemExit:
        message = failure("killed", "the code ended its process (sys.exit)")
    except BaseException as error:
        message = failure("user_error", "")
        message["error"] = describe(error, user_files)
        if message["error"]["path"] is None and item in user_files:
            message["error"]["path"] = item
        message["message"] = message["error"]["message"]
    line = _line(message)
    if len(line) > limits.result_bytes + RESULT_SLACK:
        line = _line(failure("result_limit", too_large(limits)))
    return line


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def failure(outcome: str, message: str) -> dict[str, Any]:
    """An answer that tells of a failure."""
    return {"outcome": outcome, "message": message}


def too_large(limits: Limits) -> str:
    """What to say of a result that exceeds its limit."""
    return f"the result is larger than {limits.result_bytes} bytes: return a part of it or a count"


def out_of_memory(limits: Limits) -> dict[str, Any]:
    """The failure of what exceeds its memory."""
    return failure("out_of_memory", f"needed more than {limits.memory_bytes} bytes of memory")
