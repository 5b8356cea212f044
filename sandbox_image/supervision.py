"""Running user code in a forked child: limited, watched from outside, and gone afterwards."""

import os
import select
import signal
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from .answers import Check, anything, check_answer
from .child import (
    CHILD_OUT_OF_MEMORY,
    RESULT_SLACK,
    Limits,
    failure,
    fork,
    out_of_memory,
    too_large,
)
from .processes import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    kill_descendants,
    out_of_memory_kills,
    prctl,
)
from .uac import protocol

READ_BYTES = 64 * 1024  # what a pipe holds


class HostGoneError(Exception):
    """The host closed its end: there is nobody left to work for."""


class OutOfMemoryError(Exception):
    """The kernel killed a child that had not reached its own limit: the machine is short."""


@dataclass
class Report:
    """What came of a request's items, in their order, and what they consumed together."""

    check: Check = anything
    results: list[dict[str, Any]] = field(default_factory=list)
    stdout: bytes = b""
    result_bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def take(self, item: str, line: bytes, limits: Limits) -> dict[str, Any]:
        """A child's answer, or a failure if all together would become too large with it.

        ProtocolError if the line is no answer to the item.
        """
        answer = protocol.decode(line)
        check_answer(item, answer, self.check)
        if self.result_bytes + len(line) > limits.result_bytes + RESULT_SLACK:
            return failure("result_limit", too_large(limits))
        self.result_bytes += len(line)
        return answer

    def usage(self) -> dict[str, Any]:
        """The part of an answer that tells what was printed and consumed."""
        return {
            "stdout": protocol.storable(self.stdout.decode(errors="replace")),
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "memory_bytes": self.memory_bytes,
        }


class Supervisor:
    """Runs items of work, each in a forked child of its own.

    What one of them does to the loaded project is gone before the next one starts.
    """

    def __init__(self, host_descriptor: int) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_DUMPABLE, 0)  # children, which inherit it, could read this process otherwise
        self._host = host_descriptor
        self._out_of_memory_kills = out_of_memory_kills()
        self._wakeup, write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # As the first process of a container, what it does not handle does not reach it. This
        # one Python handles, and a child could end the run of all the others by it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(
        self,
        items: Sequence[str],
        work: Callable[[str], Any],
        limits: Limits,
        user_files: Container[str],
        check: Check,
    ) -> Report:
        """The outcome of `work(item)` for every item, in order: {"item", "outcome", …}.

        An item that takes its child along has the outcome of that. A result that does not pass
        the check is no answer. Raises HostGoneError when the host left meanwhile, and
        OutOfMemoryError when the kernel took a child for its memory.
        """
        report = Report(check)
        started = time.monotonic()
        deadline = started + limits.total_seconds
        for item in items:
            if time.monotonic() < deadline:
                pid, *pipes = fork(item, work, limits, user_files)
                results, stdout = map(_Pipe, pipes)
                try:
                    answer = self._watch(item, pid, results, stdout, report, limits, deadline)
                finally:
                    results.close()
                    stdout.close()
                    kill_descendants()
            else:
                answer = failure(
                    "timeout", f"not run: the {limits.total_seconds:g} s of the request were over"
                )
            report.results.append({**answer, "item": item})
        report.seconds = time.monotonic() - started
        return report

    def _watch(
        self,
        item: str,
        pid: int,
        results: "_Pipe",
        stdout: "_Pipe",
        report: Report,
        limits: Limits,
        deadline: float,
    ) -> dict[str, Any]:
        """Watch a child until it ends, or exceeds a limit and is killed.

        Returns its answer, or the failure that left it without one or makes it doubtful.
        """
        poller = select.poll()
        poller.register(self._host, 0)  # tells only that it hung up
        poller.register(self._wakeup, select.POLLIN)
        answer: dict[str, Any] | None = None
        failed: dict[str, Any] | None = None

        produced = 0
        allowed = min(limits.wall_seconds, limits.total_seconds)
        deadline = min(deadline, time.monotonic() + limits.wall_seconds)
        ended = False
        while failed is None and not ended:
            for pipe in (results, stdout):
                pipe.watch_with(poller)
            wait = max(0.0, deadline - time.monotonic())
            if any(descriptor == self._host for descriptor, _ in poller.poll(wait * 1000)):
                os.kill(pid, signal.SIGKILL)
                raise HostGoneError
            _read_available(self._wakeup)
            # Asked before its pipes are read, which then hold all that it ever wrote.
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            printed = stdout.read()
            produced += len(printed)
            report.stdout = (report.stdout + printed)[-limits.stdout_kept_bytes :]
            try:
                for line in results.read_lines():
                    if answer is not None:  # either of the two may be forged
                        raise protocol.ProtocolError("two answers to one question")
                    answer = report.take(item, line, limits)
            except protocol.ProtocolError as error:
                failed = failure("protocol_error", f"the child's answer: {error}")
            if produced > limits.stdout_produced_bytes:
                failed = failure(
                    "output_limit", f"printed more than {limits.stdout_produced_bytes} bytes"
                )
            elif len(results.rest) > limits.result_bytes + RESULT_SLACK:
                failed = failure("result_limit", too_large(limits))
            elif not ended and time.monotonic() >= deadline:
                failed = failure("timeout", f"took longer than {allowed:g} s")
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        report.cpu_seconds += used.ru_utime + used.ru_stime
        report.memory_bytes = max(report.memory_bytes, used.ru_maxrss * 1024)
        if failed is not None:
            return failed
        if answer is None:
            if os.WIFSIGNALED(status) and out_of_memory_kills() > self._out_of_memory_kills:
                raise OutOfMemoryError
            return _ended_early(status, limits)
        if results.rest:
            return failure("protocol_error", "the child's answer: it wrote more than that")
        return answer


class _Pipe:
    """The reading end of a pipe from a child, which may close or flood its own end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.rest = bytearray()  # an incomplete line
        self._at_end = False
        self._watched = False

    def watch_with(self, poller: select.poll) -> None:
        """Be polled until the end: a pipe at its end would make every poll return at once."""
        if self._watched and self._at_end:
            poller.unregister(self.descriptor)
            self._watched = False
        elif not self._watched and not self._at_end:
            poller.register(self.descriptor, select.POLLIN)
            self._watched = True

    def read(self) -> bytes:
        """What is there, at most READ_BYTES."""
        data = _read_available(self.descriptor)
        self._at_end = data == b""
        return data or b""

    def read_lines(self) -> list[bytes]:
        """The lines that what is there completes; the incomplete one stays in `rest`."""
        data = self.read()
        self.rest += data
        if b"\n" not in data:  # a long line must not be searched again with every piece
            return []
        *lines, rest = bytes(self.rest).split(b"\n")
        self.rest = bytearray(rest)
        return lines

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def _read_available(descriptor: int) -> bytes | None:
    """What can be read without waiting; None when nothing can, b"" at the end."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None


def _ended_early(status: int, limits: Limits) -> dict[str, Any]:
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if code == CHILD_OUT_OF_MEMORY:
            return out_of_memory(limits)
        return failure("killed", f"the code ended its process with status {code}")
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return failure("timeout", f"used more than {limits.cpu_seconds} s of CPU")
    try:
        name = signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        name = f"signal {number}"
    return failure("killed", f"the process was ended by {name}")
