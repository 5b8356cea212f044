"""Describing a user's work in progress to those who are waiting for it."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Value
from django.utils import timezone

from memory.constraints.models.backtests import GOING_ON, Backtest, BacktestState
from memory.kernel import pauses
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.log import lanes
from memory.versions.models.runs import Run, RunKind, RunStatus

# The maximum number of pending entries to count, and of runs to read.
MAX_PENDING = 1000
MAX_RUNS = 20


@dataclass(frozen=True)
class WorkItem:
    """A work item: what it is, whether a worker holds it, and when it began or became due."""

    what: str
    is_held: bool
    since: datetime.datetime | None


@dataclass(frozen=True)
class Progress:
    """All of a user's work in progress, and the number of pending entries (up to `MAX_PENDING`).

    `again_at` is when failed work will next be retried, or None if no work has failed.
    """

    works: Sequence[WorkItem]
    pending: int
    again_at: datetime.datetime | None = None

    @property
    def is_working(self) -> bool:
        """True while work is in progress, so that it makes sense to check again soon."""
        return bool(self.works)

    def in_words(self, now: datetime.datetime) -> str:
        """Describe the work in a single line that contains nothing written by a person."""
        parts = [
            f"{one.what}: {'in progress' if one.is_held else 'waiting'}{_for(one.since, now)}"
            for one in self.works
        ]
        if self.pending > MAX_PENDING:
            parts.append(f"more than {MAX_PENDING:,} entries pending")
        elif self.pending:
            noun = "entry" if self.pending == 1 else "entries"
            parts.append(f"{self.pending:,} {noun} pending")
        if not self.works:
            parts.insert(0, "nothing is being processed")
        if self.again_at is not None:
            parts.append(f"next attempt{_for(now, self.again_at, 'in')}")
        return "; ".join(parts)


def lanes_of(user: MemoryUser) -> Sequence[Lane]:
    """Return the user's lanes, annotated with `is_ready`: whether a worker could claim them now."""
    now = timezone.now()
    records, structure = (
        Exists(KINDS[name].work().filter(leases.free(now), pk=OuterRef("pk")))
        for name in ("records", "structure")
    )
    own = Lane.objects.filter(user=user).order_by("pk")
    return list(own.annotate(is_ready=records | structure))


def read_progress(user: MemoryUser, own: Sequence[Lane], pending: int | None = None) -> Progress:
    """Return the user's work that is in progress or could begin now; `own` is from `lanes_of`.

    Pending entries are counted in the database, unless their number is passed as `pending`.
    """
    due = [lane for lane in own if lane.due_at is not None]
    if pending is None:
        pending = _pending(due) if due else 0
    now = timezone.now()
    put_off = [lane.run_after for lane in due if lane.last_error and lane.run_after > now]
    if put_off and pauses.find_pause(user) is not None:
        put_off = []
    return Progress([*_lanes(due), *_runs(user)], pending, min(put_off, default=None))


def _pending(due: Sequence[Lane]) -> int:
    pending = [lanes.undecided(lane).order_by().values("pk")[: MAX_PENDING + 1] for lane in due]
    return int(pending[0].union(*pending[1:], all=True).count())


def _lanes(due: Sequence[Lane]) -> Iterator[WorkItem]:
    """Yield the lanes that a worker holds or could claim now; other lanes still have to wait."""
    now = timezone.now()
    for lane in due:
        is_held = lane.lease_expires_at is not None and lane.lease_expires_at > now
        if is_held or getattr(lane, "is_ready", False):
            yield WorkItem(LaneName(lane.name).label, is_held, lane.due_at)


def _runs(user: MemoryUser) -> Iterator[WorkItem]:
    """Yield the user's unfinished runs and any unfinished backtests of their own constraints."""
    open_runs = Run.objects.unfinished().filter(user=user).order_by()
    tests = Backtest.objects.filter(user=user, state__in=GOING_ON).order_by()
    works = open_runs.values_list("kind", "status", "queued_at", "started_at").union(
        tests.annotate(kind=Value("")).values_list("kind", "state", "created_at", "started_at"),
        all=True,
    )
    for kind, status, queued, started in works.order_by("queued_at")[:MAX_RUNS]:
        what = f"run ({RunKind(kind).label})" if kind else "backtest"
        is_held = status in (RunStatus.RUNNING, BacktestState.RUNNING)
        yield WorkItem(what, is_held, started if is_held else queued)


def _for(since: datetime.datetime | None, now: datetime.datetime, how: str = "for") -> str:
    if since is None:
        return ""
    seconds = max(round((now - since).total_seconds()), 0)
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f" {how} {hours} h {minutes} min" if hours else f" {how} {minutes} min {rest} s"
