"""The results of a request so far, and a child's progress with its tasks."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .answers import Check, anything, check_answer, check_load
from .child import (
    CHILD_OUT_OF_MEMORY,
    LOAD,
    RESULT_SLACK,
    Limits,
    failure,
    out_of_memory,
    too_large,
    too_many,
)
from .uac import protocol
from .values import size

VALUE_BYTES = 128  # maximum memory that one value takes in this process


@dataclass(eq=False, repr=False)
class Report:
    """The results of a request's items, in order, and their total resource usage."""

    check: Check = anything
    started: float = field(default_factory=time.monotonic)
    results: list[dict[str, Any]] = field(default_factory=list)
    stdout: bytes = b""
    result_bytes: int = 0
    load_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def take(self, item: str, line: bytes, limits: Limits) -> dict[str, Any]:
        """Return a child's answer for an item, or a failure if all answers together are too large.

        Raises ProtocolError if the line is not a valid answer for the item.
        """
        if protocol.has_more_values(line, limits.memory_bytes // VALUE_BYTES):
            return failure("result_limit", too_many(limits.memory_bytes // VALUE_BYTES))
        answer = protocol.decode(line)
        check_answer(item, answer, check_load if item == LOAD else self.check)
        if self.result_bytes + len(line) > limits.result_bytes + RESULT_SLACK:
            usage = {name: answer.get(name, 0) for name in ("cpu_seconds", "memory_bytes")}
            return failure("result_limit", too_large(limits)) | usage
        self.result_bytes += len(line)
        return answer

    def use(self, cpu_seconds: float, memory_bytes: int) -> None:
        """Add a child's resource usage; the CPU time is capped at the time elapsed so far."""
        self.cpu_seconds += min(cpu_seconds, time.monotonic() - self.started)
        self.memory_bytes = max(self.memory_bytes, memory_bytes)

    def usage(self) -> dict[str, Any]:
        """Return the fields of an answer that report the printed output and the resource usage."""
        return {
            "stdout": protocol.storable(self.stdout.decode(errors="replace")),
            "load_seconds": self.load_seconds,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "memory_bytes": self.memory_bytes,
        }


@dataclass(eq=False, repr=False)
class Progress:
    """A child's progress with its tasks: its answers so far, or why it must be stopped."""

    works: Sequence[dict[str, Any]]
    limits: Limits
    report: Report
    deadline: float
    answers: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, Any] | None = None
    produced: int = 0  # bytes printed since the child's last answer
    stop_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin_next()

    def _begin_next(self) -> None:
        self.stop_at = min(self.deadline, time.monotonic() + self.limits.wall_seconds)
        self.produced = 0

    @property
    def is_complete(self) -> bool:
        """True if every task has been answered."""
        return len(self.answers) == len(self.works)

    @property
    def is_doubtful(self) -> bool:
        """True if it is unknown which of several tasks failed."""
        # An answer may be forged, and the output read so far may come from several tasks.
        doubtful = ("protocol_error", "output_limit")
        return (
            self.failed is not None and self.failed["outcome"] in doubtful and len(self.works) > 1
        )

    def take_answers(self, lines: Sequence[bytes]) -> None:
        """Accept these lines as the next answers; an invalid line makes the child fail."""
        try:
            for line in lines:
                if self.is_complete:  # there is one answer too many, so one of them is forged
                    raise protocol.ProtocolError("more answers than tasks")
                item = self.works[len(self.answers)]["item"]
                answer = {**self.report.take(item, line, self.limits), "item": item}
                if self.answers and answer["outcome"] == "out_of_memory":
                    self.failed = answer  # earlier tasks used memory: retry this in a fresh child
                    break
                self.answers.append(answer)
                if item == LOAD:  # the time limit of a request starts once its files are loaded
                    self.deadline = time.monotonic() + self.limits.total_seconds
                self._begin_next()
        except protocol.ProtocolError as error:
            self.fail_protocol(str(error))

    def fail_protocol(self, why: str) -> None:
        """Record that the child failed because one of its answers is invalid."""
        self.failed = failure("protocol_error", f"the child's answer is invalid: {why}")

    def take_output(self, printed: bytes) -> None:
        """Count the bytes of printed output, and keep the tail of the output."""
        self.produced += len(printed)
        self.report.stdout = (self.report.stdout + printed)[-self.limits.stdout_kept_bytes :]

    def check_limits(self, unread: int, *, ended: bool) -> None:
        """Record a failure if the child has exceeded a limit.

        `unread` is the number of bytes received so far of an incomplete answer.
        """
        limits = self.limits
        if self.produced > limits.stdout_produced_bytes:
            self.failed = failure(
                "output_limit", f"printed more than {size(limits.stdout_produced_bytes)}"
            )
        elif unread > limits.result_bytes + RESULT_SLACK:
            self.failed = failure("result_limit", too_large(limits))
        elif not ended and time.monotonic() >= self.stop_at:
            allowed = min(limits.wall_seconds, limits.total_seconds)
            self.failed = failure("timeout", f"took longer than {allowed:g} s")

    def conclude(self, status: int) -> list[dict[str, Any]]:
        """Return the answers of a child that exited with this wait status.

        If it is known which task failed, its failure is the last answer.
        """
        if self.is_complete:
            self.answers.pop()  # the last answer may be forged
        elif self.answers:
            # Either the last answered task or the next task may have made the child exit.
            return self.answers
        failed = self.failed or _ended_early(status, self.limits)
        return [*self.answers, {**failed, "item": self.works[len(self.answers)]["item"]}]


def _ended_early(status: int, limits: Limits) -> dict[str, Any]:
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if code == CHILD_OUT_OF_MEMORY:
            return out_of_memory(limits)
        return failure("killed", f"the code exited its process with status {code}")
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return failure("timeout", f"used more than {limits.cpu_seconds} s of CPU time")
    try:
        name = signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {number}"
    return failure("killed", f"the process was killed by {name}")
