"""The forked child that runs user code: its limits and the answers that it writes."""

import fcntl
import io
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from .errors import describe
from .processes import PR_SET_PDEATHSIG, prctl
from .uac import protocol
from .values import AlertLimitError, ResultLimitError, size

LOAD = "<load>"  # the item name for work that loads files; no user item has this name
RESULT_DESCRIPTOR = 3
WORK_DESCRIPTOR = 4  # closed before user code runs
FIRST_FREE = 5
DESCRIPTORS = 64
RESULT_SLACK = 64 * 1024  # extra bytes allowed for the JSON around the value
CHILD_FAILED = 70
CHILD_OUT_OF_MEMORY = 71

# Standard output for user code. It is created once, before forking, because each child loses time
# on every memory page that it is the first to touch.
STDOUT = io.TextIOWrapper(
    io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="backslashreplace"
)


class Limits(NamedTuple):
    """The limits that the host sent with a request."""

    wall_seconds: float
    total_seconds: float
    cpu_seconds: int
    memory_bytes: int
    stdout_kept_bytes: int
    stdout_produced_bytes: int
    result_bytes: int
    result_depth: int
    alerts: int

    @classmethod
    def parse(cls, values: object) -> "Limits":
        """Read limits from a request; raise ValueError unless all are present and positive."""
        names = cls.__annotations__
        if not isinstance(values, dict) or values.keys() != names.keys():
            raise ValueError(f"the limits must be exactly {', '.join(sorted(names))}")
        for name, value in values.items():
            whole = names[name] is int
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(f"the limit {name} is not a number")
            if value <= 0:
                raise ValueError(f"the limit {name} must be above zero")
        return cls(**values)


class Child(NamedTuple):
    """A forked child that waits for work, and this process's ends of its pipes."""

    pid: int
    work: int
    results: int
    stdout: int

    def close(self) -> None:
        """Close this process's ends of the child's pipes."""
        for descriptor in (self.work, self.results, self.stdout):
            os.close(descriptor)


class Performer(Protocol):
    """The operations that a child performs."""

    def make_ready(self) -> None:
        """Do everything in advance that doesn't depend on the work."""
        ...

    def perform(self, work: dict[str, Any], limits: Limits) -> Any:
        """Return the result of the work; exceptions raised by user code propagate."""
        ...

    def is_as_before(self, done: dict[str, Any]) -> bool:
        """Return whether the task just done left everything as the next task expects it."""
        ...

    def user_files(self, item: str) -> Container[str]:
        """Return the names of the user code files that may appear in an item's errors."""
        ...


def fork(performer: Performer) -> Child:
    """Fork a child that prepares itself, waits for tasks and answers each task with one line.

    The tasks come in a frame {"works", "limits", "rehearsal"}. Each has an "item", which identifies
    the task in errors. The child stops early if a task has changed anything that the next task
    would see.
    """
    (work, work_write), (results_read, results), (stdout_read, stdout) = (
        os.pipe() for _ in range(3)
    )
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _confine(parent, stdout, stdout, results, work)
            performer.make_ready()
            _serve(performer)
            os._exit(0)
        except MemoryError:  # not even enough memory left to report the error
            os._exit(CHILD_OUT_OF_MEMORY)
        finally:
            os._exit(CHILD_FAILED)
    for descriptor in (work, results, stdout):
        os.close(descriptor)
    return Child(pid, work_write, results_read, stdout_read)


def _confine(parent: int, *descriptors: int) -> None:
    """Confine this child before it runs user code.

    Only the given file descriptors stay open; they are renumbered from 1.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if parent != 1:  # when a container's first process exits, all its other processes die anyway
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CHILD_FAILED)
    # Go through unused numbers, since one descriptor may occupy another's target number.
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, FIRST_FREE) for one in descriptors]
    for target, descriptor in enumerate(high, 1):
        os.dup2(descriptor, target)
    os.closerange(FIRST_FREE, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    # Forbid new processes and threads: user code needs neither, and code that can't fork can't
    # leave anything running. A limit of zero applies no matter how many other processes share the
    # user id.
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    sys.stdout = sys.stderr = STDOUT


def _serve(performer: Performer) -> None:
    """Wait for tasks, perform them one by one and answer each task with one line."""
    works, limits = _wait(performer)
    os.close(WORK_DESCRIPTOR)
    _limit(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
    for work in works:
        # SIGXCPU, which is sent at the soft limit, reveals that the code used up its CPU time. The
        # kernel counts whole seconds, so round the CPU time used so far in a way that loses at most
        # a tenth of a second.
        used = max(0, math.ceil(time.process_time() - 0.1))
        _limit(resource.RLIMIT_CPU, used + limits.cpu_seconds)
        answer = _answer(work, performer, limits)
        with suppress(Exception):  # user code may have closed or replaced the stream
            sys.stdout.flush()
        write(RESULT_DESCRIPTOR, answer)
        if work is not works[-1] and not performer.is_as_before(work):
            break  # another child does the remaining tasks
    else:
        os.close(RESULT_DESCRIPTOR)  # signals that no more answers follow
        signal.pause()  # exiting now would delay the answer, so this child is killed later


def _wait(performer: Performer) -> tuple[list[dict[str, Any]], Limits]:
    """Wait for work and its limits, and return both; run rehearsals while waiting."""
    while (message := protocol.read_frame(reader(WORK_DESCRIPTOR))) is not None:
        limits = Limits.parse(message["limits"])
        if not message["rehearsal"]:
            return message["works"], limits
        lines = [_answer(work, performer, limits).decode() for work in message["works"]]
        write(RESULT_DESCRIPTOR, protocol.encode_frame({"rehearsed": lines}))
    os._exit(0)  # the parent closed the pipe: this child isn't needed


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a resource's soft limit (and hard limit, if given), up to the current hard limit."""
    allowed = resource.getrlimit(kind)[1]
    if hard is None:
        hard = allowed
    elif allowed != resource.RLIM_INFINITY:
        hard = min(hard, allowed)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _answer(work: dict[str, Any], performer: Performer, limits: Limits) -> bytes:
    """Perform the work and return the answer as one line, whatever user code raises."""
    message: dict[str, Any]
    try:
        message = {"outcome": "ok", "result": performer.perform(work, limits)}
    except MemoryError as error:
        error.__traceback__ = None  # the traceback's frames keep alive whatever filled the memory
        message = out_of_memory(limits)
    except ResultLimitError as error:
        message = failure("result_limit", str(error))
    except AlertLimitError as error:
        message = failure("alert_limit", str(error)) | {"result": error.result}
    except SystemExit:
        message = failure("killed", "the code exited its process (sys.exit)")
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
    """Write all of the data to the descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def reader(descriptor: int) -> Callable[[int], bytes]:
    """Return a function that reads the requested number of bytes, or fewer at end of file."""

    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count and (part := os.read(descriptor, count - len(data))):
            data += part
        return bytes(data)

    return read


def failure(outcome: str, message: str) -> dict[str, Any]:
    """Return an answer that reports a failure with this outcome."""
    return {"outcome": outcome, "message": message}


def too_large(limits: Limits) -> str:
    """Return the message for a result that exceeds its size limit."""
    return f"the result is larger than {size(limits.result_bytes)}: return a part of it or a count"


def too_many(values: int) -> str:
    """Return the message for a result with more than `values` values."""
    return f"the result has more than {values} values: return a part of it or a count"


def out_of_memory(limits: Limits) -> dict[str, Any]:
    """Return the answer for code that exceeded its memory limit."""
    return failure("out_of_memory", f"needed more than {size(limits.memory_bytes)} of memory")
