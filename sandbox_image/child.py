"""The forked child that runs user code: its limits, and the answer that it writes."""

import fcntl
import io
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Protocol

from .errors import describe
from .processes import PR_SET_PDEATHSIG, prctl
from .uac import protocol
from .values import ResultLimitError, size

RESULT_DESCRIPTOR = 3
WORK_DESCRIPTOR = 4  # gone before user code runs
FIRST_FREE = 5
DESCRIPTORS = 64
RESULT_SLACK = 64 * 1024  # for what surrounds the value
CHILD_FAILED = 70
CHILD_OUT_OF_MEMORY = 71

# What user code prints to; made once, because every page that a child touches first costs time.
STDOUT = io.TextIOWrapper(
    io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="backslashreplace"
)


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


@dataclass(frozen=True)
class Child:
    """A forked child that waits for its work, and the ends of its pipes that stay here."""

    pid: int
    work: int
    results: int
    stdout: int

    def close(self) -> None:
        """Close these ends of its pipes."""
        for descriptor in (self.work, self.results, self.stdout):
            os.close(descriptor)


class Performer(Protocol):
    """What a child does."""

    def make_ready(self) -> None:
        """Do ahead of the work what does not depend on it."""
        ...

    def perform(self, work: dict[str, Any], limits: Limits) -> Any:
        """The result of the work; what user code raises, raises."""
        ...

    def is_as_before(self) -> bool:
        """Whether the next work would find here what the first one did."""
        ...

    def user_files(self, item: str) -> Container[str]:
        """The names of the files of user code that may show up in errors of that item."""
        ...


def fork(performer: Performer) -> Child:
    """Start a child that makes itself ready, waits for works and answers each of them with a line.

    What it waits for is a frame {"works", "limits"}; each work has its "item", which names it in
    errors. It stops early when a work changed what the next one would find.
    """
    pipes = [os.pipe() for _ in range(3)]
    (work, work_write), (results_read, results), (stdout_read, stdout) = pipes
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _confine(parent, work, results, stdout)
            performer.make_ready()
            _serve(performer)
            os._exit(0)
        except MemoryError:  # so little is left that even saying so failed
            os._exit(CHILD_OUT_OF_MEMORY)
        finally:
            os._exit(CHILD_FAILED)
    for descriptor in (work, results, stdout):
        os.close(descriptor)
    return Child(pid, work_write, results_read, stdout_read)


def _confine(parent: int, work: int, results: int, stdout: int) -> None:
    """Make this child what user code may run in: it holds its three pipes and nothing else."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if parent != 1:  # with the first process of a container, all others end
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CHILD_FAILED)
    # To their places by way of descriptors that are none: one may be in another's place.
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, FIRST_FREE) for one in (stdout, stdout, results, work)]
    for descriptor, place in zip(high, (1, 2, RESULT_DESCRIPTOR, WORK_DESCRIPTOR), strict=True):
        os.dup2(descriptor, place)
    os.closerange(FIRST_FREE, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    # No process and no thread: none is needed, and what cannot fork leaves nothing behind.
    # Zero also does not depend on what others run under the same user id.
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    sys.stdout = sys.stderr = STDOUT


def _serve(performer: Performer) -> None:
    """Wait for the works, perform one after the other and answer each with a line."""
    with open(WORK_DESCRIPTOR, "rb") as stream:
        request = protocol.read_frame(stream.read)
    if request is None:  # it was not needed
        os._exit(0)
    limits = Limits.of(request["limits"])
    _limit(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
    for work in request["works"]:
        # At the soft limit comes SIGXCPU, which tells what happened. The kernel counts in seconds:
        # what was used before is rounded, so that at most a tenth of one is missing.
        used = max(0, math.ceil(time.process_time() - 0.1))
        _limit(resource.RLIMIT_CPU, used + limits.cpu_seconds)
        answer = _answer(work, performer, limits)
        with suppress(Exception):  # user code may have closed or replaced it
            sys.stdout.flush()
        write(RESULT_DESCRIPTOR, answer)
        if work is not request["works"][-1] and not performer.is_as_before():
            break  # another child does the rest
    os.close(RESULT_DESCRIPTOR)  # which tells that it is all; to end takes longer


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, the hard one only if it is given; neither above what is allowed."""
    allowed = resource.getrlimit(kind)[1]
    if hard is None:
        hard = allowed
    elif allowed != resource.RLIM_INFINITY:
        hard = min(hard, allowed)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _answer(work: dict[str, Any], performer: Performer, limits: Limits) -> bytes:
    """Perform the work and return its answer as a line, whatever user code raises."""
    message: dict[str, Any]
    try:
        message = {"outcome": "ok", "result": performer.perform(work, limits)}
    except MemoryError as error:
        error.__traceback__ = None  # its frames hold what filled the memory
        message = out_of_memory(limits)
    except ResultLimitError as error:
        message = failure("result_limit", str(error))
    except SystemExit:
        message = failure("killed", "the code ended its process (sys.exit)")
    except BaseException as error:
        item = work["item"]
        user_files = performer.user_files(item)
        message = failure("user_error", "")
        message["error"] = describe(error, user_files)
        if message["error"]["path"] is None and item in user_files:
            message["error"]["path"] = item
        message["message"] = message["error"]["message"]
    used = resource.getrusage(resource.RUSAGE_SELF)
    usage = {"cpu_seconds": used.ru_utime + used.ru_stime, "memory_bytes": used.ru_maxrss * 1024}
    line = _line(message | usage)
    if len(line) > limits.result_bytes + RESULT_SLACK:
        line = _line(failure("result_limit", too_large(limits)) | usage)
    return line


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def write(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def failure(outcome: str, message: str) -> dict[str, Any]:
    """An answer that tells of a failure."""
    return {"outcome": outcome, "message": message}


def too_large(limits: Limits) -> str:
    """What to say of a result that exceeds its limit."""
    return f"the result is larger than {size(limits.result_bytes)}: return a part of it or a count"


def out_of_memory(limits: Limits) -> dict[str, Any]:
    """The failure of what exceeds its memory."""
    return failure("out_of_memory", f"needed more than {size(limits.memory_bytes)} of memory")
