"""Run user code in forked children: limit them, watch them from outside, kill them afterwards."""

import itertools
import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .child import Child, Limits, Performer, failure, fork, reader, write
from .loader import WORKSPACE
from .processes import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    count_children,
    kill_descendants,
    out_of_memory_kills,
    prctl,
)
from .progress import Progress, Report
from .uac import protocol

READ_BYTES = 64 * 1024  # the capacity of a pipe


class HostGoneError(Exception):
    """The host closed its end of the stream: nobody is waiting for the results any more."""


class OutOfMemoryError(Exception):
    """The kernel killed a child that was within its own limit: the container is out of memory."""


class Supervisor:
    """Runs tasks in forked children.

    No task sees changes that another task made to the loaded project. Forking a child takes longer
    than most tasks, so one child is forked in advance, and tasks that can share a child do so as
    long as none of them changes the project in it.
    """

    def __init__(self, host_descriptor: int, performer: Performer) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_DUMPABLE, 0)  # inherited by children, so they can't read this process
        self._host = host_descriptor
        self._performer = performer
        self._next: Child | None = None
        self._done: list[int] = []  # the pids of children that have answered but not been killed
        self._out_of_memory_kills = out_of_memory_kills()
        self._wakeup, write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # A container's first process receives only signals that it handles. Python handles SIGINT,
        # so a child could use SIGINT to kill this process, and with it the other children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(
        self,
        works: Sequence[dict[str, Any]],
        limits: Limits,
        report: Report,
        *,
        together: bool = False,
        once: bool = False,
    ) -> Report:
        """Perform the tasks and add each one's outcome to the report: {"item", "outcome", …}.

        Tasks whose outcome is already in the report are not repeated. If a task makes its child
        exit, its outcome describes how the child exited. Results that fail the report's check are
        rejected. If `together` is set, each child does as many tasks as it can; if `once` is set,
        only one child is used, and the remaining tasks are left undone. Raises HostGoneError if the
        host disconnects before all tasks are done, and OutOfMemoryError if the container runs out
        of memory and the kernel kills a child.
        """
        deadline = report.started + report.load_seconds + limits.total_seconds
        while len(report.results) < len(works):
            pending = works[len(report.results) :]
            if time.monotonic() >= deadline:
                over = failure(
                    "timeout",
                    f"not run: the request has used up its {limits.total_seconds:g} s",
                )
                report.results += [{**over, "item": work["item"]} for work in pending]
                break
            self._end_done()
            batch = of_one_side(pending) if together else pending[:1]
            child = self._begin(batch, limits)
            results, stdout = _Pipe(child.results), _Pipe(child.stdout)
            try:
                answers = self._watch(batch, child.pid, results, stdout, report, limits, deadline)
            finally:
                results.close()
                stdout.close()
            if answers is None:  # unknown which task failed: now run each in its own child
                together = False
            else:
                report.results += answers
            if once:
                break
        report.seconds = time.monotonic() - report.started
        return report

    def make_ready(self) -> None:
        """Fork a child to wait for the next tasks, unless one is already waiting."""
        if self._next is None:
            self._next = fork(self._performer)

    def rehearse(self, works: Sequence[dict[str, Any]], limits: Limits) -> list[dict[str, Any]]:
        """Have the waiting child do these tasks as a warm-up, then wait again; return the results.

        After a fork, the process that first writes to a memory page that both processes share has
        to wait for a copy of the page. The rehearsal makes these copies while nobody is waiting.
        """
        child = self._next
        assert child is not None
        message = None
        with suppress(BrokenPipeError):  # something killed the child while it waited
            write(child.work, _frame(works, limits, rehearsal=True))
            message = protocol.read_frame(reader(child.results))
        if message is None:
            self.forget()
            return []
        report = Report()
        return [report.take("", line.encode(), limits) for line in message["rehearsed"]]

    def sweep(self) -> None:
        """Kill all child processes except the one that waits for the next tasks."""
        self._end_done()
        if count_children() != (0 if self._next is None else 1):
            self.forget()

    def forget(self) -> None:
        """Kill all child processes, including the waiting one, which lacks files loaded later."""
        if self._next is not None:
            self._next.close()
            self._next = None
        self._done.clear()
        kill_descendants()

    def _end_done(self) -> None:
        for pid in self._done:
            os.kill(pid, signal.SIGKILL)  # safe: even a dead child keeps its pid until it is reaped
        for pid in self._done:
            os.waitpid(pid, 0)
        self._done.clear()

    def _begin(self, works: Sequence[dict[str, Any]], limits: Limits) -> Child:
        """Return a child to which the tasks have been handed."""
        frame = _frame(works, limits, rehearsal=False)
        for _ in range(2):
            self.make_ready()
            child, self._next = self._next, None
            assert child is not None
            try:
                write(child.work, frame)
            except BrokenPipeError:  # something killed the child while it waited
                child.close()
                if out_of_memory_kills() > self._out_of_memory_kills:
                    raise OutOfMemoryError from None
                continue
            os.close(child.work)
            return child
        raise ChildProcessError("two children in a row exited before they could begin their tasks")

    def _watch(
        self,
        works: Sequence[dict[str, Any]],
        pid: int,
        results: "_Pipe",
        stdout: "_Pipe",
        report: Report,
        limits: Limits,
        deadline: float,
    ) -> list[dict[str, Any]] | None:
        """Watch a child until it has answered every task, has exited, or exceeds a limit.

        Returns the answers to the tasks, in order; there are fewer answers than tasks if the child
        exited early. The last answer may be the failure that made the child exit. Returns None if
        it is unknown which of several tasks failed.
        """
        poller = select.poll()
        poller.register(self._host, 0)  # with an event mask of 0, poll reports only hang-ups
        poller.register(self._wakeup, select.POLLIN)
        progress = Progress(works, limits, report, deadline)
        before = report.stdout, report.result_bytes
        ended = False
        while progress.failed is None and not ended:
            for pipe in (results, stdout):
                pipe.watch_with(poller)
            wait = max(0.0, progress.stop_at - time.monotonic())
            if any(descriptor == self._host for descriptor, _ in poller.poll(wait * 1000)):
                os.kill(pid, signal.SIGKILL)
                raise HostGoneError
            if _read_available(self._wakeup):
                # Check whether the child has exited before reading the pipes: once it has, they
                # hold everything that it wrote.
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            progress.take_answers(results.read_lines())
            printed = stdout.read()  # read after the answers, since the output was written earlier
            progress.take_output(printed)
            progress.check_limits(len(results.rest), ended=ended)
            if progress.is_complete and results.at_end and len(printed) < READ_BYTES:
                break  # the child closed its pipe, so this is everything: don't wait for its exit
        if progress.failed is None and progress.is_complete and results.rest:
            progress.fail_protocol("there is more data after the last answer")
        if progress.failed is None and progress.is_complete:
            self._done.append(pid)
            last = progress.answers[-1]
            report.use(last.get("cpu_seconds", 0.0), last.get("memory_bytes", 0))
            return progress.answers
        os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        report.use(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
        killed = progress.failed is None and os.WIFSIGNALED(status)
        if killed and out_of_memory_kills() > self._out_of_memory_kills:
            raise OutOfMemoryError
        if progress.is_doubtful:
            report.stdout, report.result_bytes = before
            return None
        return progress.conclude(status)


def _frame(works: Sequence[dict[str, Any]], limits: Limits, *, rehearsal: bool) -> bytes:
    return protocol.encode_frame(
        {"works": works, "limits": limits._asdict(), "rehearsal": rehearsal}
    )


def of_one_side(works: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the leading tasks that may share a process.

    A workspace's constraints never share a process with the project's own constraints: those may
    have bypassed the policy, and could change what the workspace's constraints report.
    """
    is_workspace = works[:1] and works[0]["item"].startswith(WORKSPACE)
    return list(
        itertools.takewhile(lambda work: work["item"].startswith(WORKSPACE) == is_workspace, works)
    )


class _Pipe:
    """The read end of a pipe from a child; the child may close or flood the other end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.rest = bytearray()  # the bytes of an incomplete line
        self.at_end = False
        self._watched = False

    def watch_with(self, poller: select.poll) -> None:
        """Register the pipe with the poller, and unregister it once its end has been reached.

        A registered pipe at its end would make every poll return immediately.
        """
        if self._watched and self.at_end:
            poller.unregister(self.descriptor)
            self._watched = False
        elif not self._watched and not self.at_end:
            poller.register(self.descriptor, select.POLLIN)
            self._watched = True

    def read(self) -> bytes:
        """Return the bytes available now, at most READ_BYTES."""
        data = _read_available(self.descriptor)
        self.at_end = data == b""
        return data or b""

    def read_lines(self) -> list[bytes]:
        """Return the lines that are complete so far; an incomplete line stays in `rest`."""
        data = self.read()
        if data.endswith(b"\n"):
            data += self.read()  # usually nothing follows, and this read notices the pipe's end
        self.rest += data
        if b"\n" not in data:  # don't search a long line again whenever more of it arrives
            return []
        *lines, rest = bytes(self.rest).split(b"\n")
        self.rest = bytearray(rest)
        return lines

    def close(self) -> None:
        """Close the pipe's read end."""
        os.close(self.descriptor)


def _read_available(descriptor: int) -> bytes | None:
    """Return the bytes available without waiting: None if there are none yet, b"" at EOF."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None
