"""The forked child that runs user code: its limits, and the answer that it writes."""

import fcntl
import io
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Protocol

from .errors import describe
from .processes import PR_SET_PDEATHSIG, prctl
from .uac import protocol
from .values import AlertLimitError, ResultLimitError, size

LOAD = "<load>"  # the item of the work that loads files, which is no item of the user's
RESULT_DESCRIPTOR = 3
# These are gone before user code runs.
WORK_DESCRIPTOR = 4
HOST_DESCRIPTOR = 5
REQUEST_DESCRIPTOR = 6
FIRST_FREE = 7
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
    alerts: int

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
    requests: int
    results: int
    stdout: int

    def close(self) -> None:
        """Close these ends of its pipes."""
        self.close_inputs()
        for descriptor in (self.results, self.stdout):
            os.close(descriptor)

    def close_inputs(self) -> None:
        """Close those that it needs no more once it has begun."""
        for descriptor in (self.work, self.requests):
            os.close(descriptor)


class Performer(Protocol):
    """What a child does."""

    def begin(self, request: dict[str, Any]) -> tuple[list[dict[str, Any]], Limits]:
        """What the first child does of a request of the host's; an exception if nothing."""
        ...

    def make_ready(self) -> None:
        """Do ahead of the work what does not depend on it."""
        ...

    def perform(self, work: dict[str, Any], limits: Limits) -> Any:
        """The result of the work; what user code raises, raises."""
        ...

    def is_as_before(self, done: dict[str, Any]) -> bool:
        """Whether the next work would find here what it should, after this one was done."""
        ...

    def user_files(self, item: str) -> Container[str]:
        """The names of the files of user code that may show up in errors of that item."""
        ...


def fork(performer: Performer, host: int) -> Child:
    """Start a child that makes itself ready, waits for works and answers each of them with a line.

    What it waits for is the next request of the host, which it passes on as it came before it
    begins, or a frame {"works", "limits", "rehearsal"} from here. Each work has its "item", which
    names it in errors. It stops early when a work changed what the next one would find.
    """
    pipes = [os.pipe() for _ in range(4)]
    (work, work_write), (requests_read, requests), (results_read, results), *_ = pipes
    stdout_read, stdout = pipes[-1]
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _confine(parent, stdout, stdout, results, work, host, requests)
            performer.make_ready()
            _serve(performer)
            os._exit(0)
        except MemoryError:  # so little is left that even saying so failed
            os._exit(CHILD_OUT_OF_MEMORY)
        finally:
            os._exit(CHILD_FAILED)
    for descriptor in (work, requests, results, stdout):
        os.close(descriptor)
    return Child(pid, work_write, requests_read, results_read, stdout_read)


def _confine(parent: int, *descriptors: int) -> None:
    """Make this child what user code may run in: it holds these, from 1 on, and nothing else."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if parent != 1:  # with the first process of a container, all others end
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CHILD_FAILED)
    # To their places by way of descriptors that are none: one may be in another's place.
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, FIRST_FREE) for one in descriptors]
    for place, descriptor in enumerate(high, 1):
        os.dup2(descriptor, place)
    os.closerange(FIRST_FREE, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    # No process and no thread: none is needed, and what cannot fork leaves nothing behind.
    # Zero also does not depend on what others run under the same user id.
    for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    sys.stdout = sys.stderr = STDOUT


def _serve(performer: Performer) -> None:
    """Wait for works, perform one after the other and answer each with a line."""
    works, limits = _wait(performer)
    os.closerange(WORK_DESCRIPTOR, FIRST_FREE)
    _limit(resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes)
    _limit(resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
    for work in works:
        # At the soft limit comes SIGXCPU, which tells what happened. The kernel counts in seconds:
        # what was used before is rounded, so that at most a tenth of one is missing.
        used = max(0, math.ceil(time.process_time() - 0.1))
        _limit(resource.RLIMIT_CPU, used + limits.cpu_seconds)
        answer = _answer(work, performer, limits)
        with suppress(Exception):  # user code may have closed or replaced it
            sys.stdout.flush()
        write(RESULT_DESCRIPTOR, answer)
        if work is not works[-1] and not performer.is_as_before(work):
            break  # another child does the rest
    else:
        os.close(RESULT_DESCRIPTOR)  # which tells that it is all
        signal.pause()  # to end takes the processor from the answer, so it is ended later


def _wait(performer: Performer) -> tuple[list[dict[str, Any]], Limits]:
    """The works to do; until they come, some may be rehearsed."""
    poller = select.poll()
    for descriptor in (WORK_DESCRIPTOR, HOST_DESCRIPTOR):
        poller.register(descriptor, select.POLLIN)
    while True:
        if WORK_DESCRIPTOR in dict(poller.poll()):
            message = protocol.read_frame(reader(WORK_DESCRIPTOR))
            if message is None:  # it was not needed
                os._exit(0)
            limits = Limits.of(message["limits"])
            if not message["rehearsal"]:
                return message["works"], limits
            lines = [_answer(work, performer, limits).decode() for work in message["works"]]
            write(REQUEST_DESCRIPTOR, protocol.encode_frame({"rehearsed": lines}))
        else:
            body = protocol.read_body(reader(HOST_DESCRIPTOR))
            if body is None:
                os._exit(0)
            write(REQUEST_DESCRIPTOR, protocol.frame(body))
            return performer.begin(protocol.decode(body))


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
    except AlertLimitError as error:
        message = failure("alert_limit", str(error)) | {"result": error.result}
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


def reader(descriptor: int) -> Callable[[int], bytes]:
    """A function that reads so many bytes from it and none more, fewer only at its end."""

    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count and (part := os.read(descriptor, count - len(data))):
            data += part
        return bytes(data)

    return read


def failure(outcome: str, message: str) -> dict[str, Any]:
    """An answer that tells of a failure."""
    return {"outcome": outcome, "message": message}


def too_large(limits: Limits) -> str:
    """What to say of a result that exceeds its limit."""
    return f"the result is larger than {size(limits.result_bytes)}: return a part of it or a count"


def too_many(values: int) -> str:
    """What to say of a result with more values than that."""
    return f"the result has more than {values} values: return a part of it or a count"


def out_of_memory(limits: Limits) -> dict[str, Any]:
    """The failure of what exceeds its memory."""
    return failure("out_of_memory", f"needed more than {size(limits.memory_bytes)} of memory")
