"""Turns: decide which hints a worker acts on immediately, and which have to wait.

Hints are taken in the order in which they were sent. If this were the only rule, a workspace whose
work takes a long time could occupy all of a worker's threads and keep all other workspaces waiting.
So no workspace ever gets all of the threads; a workspace whose work has recently taken a long time
gets at most half of them while other workspaces are active; and some threads never do long work for
any workspace. If a hint's workspace may not use another thread, the hint is held, and sent again
when a thread finishes its work. Work that somebody may be waiting for comes first, then forecasts
and backtests; within each group, the workspace with the lowest recent cost comes first.

This state is kept in one process's memory only; if it is lost, the dispatcher finds the work again.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from celery import Task
from opentelemetry.trace import SpanKind

from memory.kernel import tracing
from memory.kernel.work.hints import send_hint
from memory.kernel.work.kinds import KINDS

logger = structlog.get_logger(__name__)

# Work that takes longer than this many seconds is considered long.
LONG_SECONDS = 0.25
# Half-life of past costs, in seconds.
HALF_LIFE_SECONDS = 30.0
# A workspace is considered alone in a worker if no other workspace has been seen for this many
# seconds.
ALONE_SECONDS = 60.0
# Tasks that nobody waits for. These tasks come after all other work, but yield to it for at most
# this many seconds.
BACKGROUND = frozenset(kind.name for kind in KINDS.values() if not kind.urgent)
BACKGROUND_SECONDS = 60.0
# Maximum number of hints held, and of workspaces whose costs are remembered.
MAX_HELD = 1000
MAX_REMEMBERED = 10_000


@dataclass(frozen=True)
class Hint:
    """A kind of work and a key, the workspace and user that it is for, and the kind of run."""

    work: str
    key: str | int
    workspace: int | None = field(compare=False)
    user: int | None = field(default=None, compare=False)
    kind: str = field(default="", compare=False)


@dataclass(frozen=True, eq=False)
class CurrentWork:
    """A hint that a thread is acting on, and when it began to do so."""

    hint: Hint
    since: float


@dataclass(frozen=True)
class _Cost:
    """Seconds of work done, and when that work ended."""

    seconds: float = 0.0
    at: float = 0.0

    def left(self, now: float) -> float:
        """Return how many of the seconds still count, given how long ago they were spent."""
        return self.seconds * float(0.5 ** ((now - self.at) / HALF_LIFE_SECONDS))


class Turns:
    """The work in progress and the hints held in a worker; all methods are thread-safe."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any work; `clock` returns seconds."""
        self._threads = threads
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: set[CurrentWork] = set()
        self._held: OrderedDict[Hint, float] = OrderedDict()  # hint → since when, oldest first
        self._longest: OrderedDict[object, _Cost] = OrderedDict()  # longest costs, by kind of work
        self._spent: OrderedDict[int, _Cost] = OrderedDict()  # total costs, by workspace
        self._heard: OrderedDict[int, float] = OrderedDict()  # the last two workspaces, newest last

    def begin(self, hint: Hint) -> CurrentWork | None:
        """Return the work to do, to be passed to `end`; None if the hint has to wait.

        A hint that has to wait is held, or dropped if too many are held already.
        """
        now = self._clock()
        with self._lock:
            if hint.workspace is not None:
                _remember(self._heard, hint.workspace, now, 2)
            if self._has_turn(hint, now):
                self._held.pop(hint, None)
                work = CurrentWork(hint, now)
                self._begun.add(work)
                return work
            if len(self._held) < MAX_HELD:
                self._held.setdefault(hint, now)
            return None

    def end(self, work: CurrentWork) -> Hint | None:
        """Mark work as done; return a held hint whose turn it is, to be sent again, or None."""
        now = self._clock()
        with self._lock:
            self._begun.remove(work)
            if work.hint.workspace is not None:
                self._add_cost(work.hint, now - work.since, now)
            # If two hints have the same rank, the one held longer comes first.
            for held in sorted(self._held, key=lambda one: self._order(one, now)):
                if self._has_turn(held, now):
                    del self._held[held]
                    return held
        return None

    def _has_turn(self, hint: Hint, now: float) -> bool:
        threads = self._threads
        if hint.workspace is None or threads == 1:
            return True
        if not self._is_long(hint, now):
            own = sum(work.hint.workspace == hint.workspace for work in self._begun)
            return own < max(threads - 1, 2)
        long = [
            work.hint.workspace
            for work in self._begun
            if now - work.since > LONG_SECONDS or self._is_long(work.hint, now)
        ]
        most = threads - max(1, threads // 4)
        share = most if self._is_alone(hint.workspace, now) else max(1, threads // 2)
        return len(long) < most and long.count(hint.workspace) < share

    def _order(self, hint: Hint, now: float) -> tuple[bool, float]:
        spent = self._spent.get(hint.workspace or 0, _Cost()).left(now)
        can_wait = hint.work in BACKGROUND and now - self._held[hint] < BACKGROUND_SECONDS
        return can_wait, spent

    def _is_long(self, hint: Hint, now: float) -> bool:
        """Return whether this workspace's work of this kind has recently taken a long time."""
        return self._longest.get(_kind(hint), _Cost()).left(now) > LONG_SECONDS

    def _is_alone(self, workspace: int, now: float) -> bool:
        return all(one == workspace or now - at > ALONE_SECONDS for one, at in self._heard.items())

    def _add_cost(self, hint: Hint, seconds: float, now: float) -> None:
        assert hint.workspace is not None
        longest = max(seconds, self._longest.get(_kind(hint), _Cost()).left(now))
        _remember(self._longest, _kind(hint), _Cost(longest, now), MAX_REMEMBERED)
        spent = seconds + self._spent.get(hint.workspace, _Cost()).left(now)
        _remember(self._spent, hint.workspace, _Cost(spent, now), MAX_REMEMBERED)


def _kind(hint: Hint) -> object:
    return hint.workspace, hint.work, hint.kind


def _remember(remembered: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Store the value as the newest, and drop the oldest, so that at most `most` remain."""
    remembered[key] = value
    remembered.move_to_end(key)
    while len(remembered) > most:
        remembered.popitem(last=False)


_turns: Turns | None = None


def open_turns(threads: int) -> None:
    """Start using turns in this process, whose worker has this many threads."""
    global _turns
    _turns = Turns(threads)


class FairTask(Task):  # type: ignore[type-arg] # at run time it takes none
    """A task that waits for its workspace's turn and continues the trace of the hint's sender."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do the task, unless it has to wait; then send the held hint whose turn it is."""
        if _turns is None:
            return self._traced(*args, **kwargs)
        task_request = self.request
        workspace, user, kind = (
            task_request.get("workspace"),
            task_request.get("user"),
            task_request.get("kind") or "",
        )
        name = self.name.removeprefix("workers.")
        work = _turns.begin(Hint(name, args[0] if args else "", workspace, user, kind))
        if work is None:
            logger.info("hint_held", work=name, workspace=workspace)
            return None
        try:
            return self._traced(*args, **kwargs)
        finally:
            if (following := _turns.end(work)) is not None:
                send_hint(
                    following.work,
                    following.key,
                    workspace_pk=following.workspace,
                    user_pk=following.user,
                    run_kind=following.kind,
                )

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        parent = {"traceparent": self.request.get("traceparent") or ""}
        with tracing.span(self.name, kind=SpanKind.CONSUMER, parent=parent):
            return self.run(*args, **kwargs)
