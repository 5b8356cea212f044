"""The state of the work of each kind, and which work items are stuck.

Work is *waiting* while a worker could claim it but none has, *held* while a worker has claimed it,
*failing* after several unsuccessful attempts, and *dead* once it has failed permanently: dead work
is retried only if staff request it. Failing work is retried forever at increasing intervals, except
for runs, webhook messages, forecasts and backtests, which eventually fail permanently.
"""

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from django.db import models
from django.db.models import Count, Min, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from memory.kernel.models.leased import LeasedWork
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS, WorkKind

STATUSES = {
    "waiting": "waiting for a worker",
    "held": "in progress",
    "failing": "failing",
    "dead": "failed permanently",
}


@dataclass(frozen=True, kw_only=True)
class WorkStatus:
    """The status of a kind of work: how many work items are waiting, held, failing and dead.

    `oldest` is how long, in seconds, the oldest waiting work has been ready to begin; `longest` is
    how long, in seconds, the oldest held work has been due.
    """

    kind: WorkKind
    waiting: int
    oldest: float
    held: int
    longest: float
    failing: int
    dead: int


def work_statuses(kinds: Iterable[WorkKind] | None = None) -> Iterator[WorkStatus]:
    """Yield the status of the given kinds of work (default: all), using a single SQL statement."""
    now = timezone.now()
    kinds = list(KINDS.values() if kinds is None else kinds)
    if not kinds:
        return
    counts = [
        rows.order_by()
        .values(of=Value(kind.name), how=Value(how))
        # Work that is backing off isn't waiting for a worker until its `run_after`.
        .annotate(number=Count("pk"), began=Min(Greatest(kind.since or "run_after", "run_after")))
        for kind in kinds
        for how, rows in rows_by_status(kind, now).items()
    ]
    by_kind = {
        (row["of"], row["how"]): (row["number"], row["began"])
        for row in counts[0].union(*counts[1:], all=True)
    }
    for kind in kinds:
        (waiting, oldest), (held, longest), (failing, _), (dead, _) = (
            by_kind.get((kind.name, how), (0, None)) for how in STATUSES
        )
        yield WorkStatus(
            kind=kind,
            waiting=waiting,
            oldest=_seconds(oldest, now) if kind.since else 0.0,
            held=held,
            longest=_seconds(longest, now) if kind.since else 0.0,
            failing=failing,
            dead=dead,
        )


def rows_by_status(kind: WorkKind, now: datetime.datetime) -> Mapping[str, QuerySet[Any]]:
    """Map each status (`waiting`, `held`, `failing`, `dead`) to this kind's work in that status."""
    work, ready = kind.work(), kind.ready_work()
    return {
        "waiting": work.filter(leases.free(now)) if ready is None else ready,
        "held": work.filter(lease_expires_at__gt=now),
        "failing": kind.failing(),
        "dead": kind.dead(),
    }


def _seconds(since: datetime.datetime | None, now: datetime.datetime) -> float:
    return max((now - since).total_seconds(), 0.0) if since else 0.0


@dataclass(frozen=True)
class Stuck:
    """A work item that is failing or dead.

    `since` is when the work became due or, if it is dead, when it failed permanently; `again_at` is
    when it will be retried, or None if it is dead.
    """

    kind: WorkKind
    row: LeasedWork
    owner: models.Model
    is_dead: bool
    since: datetime.datetime | None
    attempts: int
    again_at: datetime.datetime | None
    error: str


def find_stuck(kind: WorkKind, limit: int) -> Sequence[Stuck]:
    """Return up to `limit` stuck work items: dead ones, latest first, then failing ones."""
    given_up = kind.dead().select_related(kind.owner)
    if kind.mortal:
        given_up = given_up.order_by("-dead_since")
    dead = [_stuck(kind, row, is_dead=True) for row in given_up[:limit]]
    failing = kind.failing().select_related(kind.owner).order_by("-attempts", "pk")
    return [*dead, *(_stuck(kind, row, is_dead=False) for row in failing[: limit - len(dead)])]


def _stuck(kind: WorkKind, row: Any, *, is_dead: bool) -> Stuck:
    return Stuck(
        kind=kind,
        row=row,
        owner=getattr(row, kind.owner),
        is_dead=is_dead,
        since=row.dead_since if is_dead else getattr(row, kind.since or "run_after"),
        attempts=row.attempts,
        again_at=None if is_dead else row.run_after,
        error=row.last_error,
    )


def try_again(kind: WorkKind, keys: Collection[Any]) -> int:
    """Retry these failing or dead work items now; return how many will be retried.

    Work items that have been settled or redacted in the meantime are skipped.
    """
    now = timezone.now()
    failing = kind.work().filter(pk__in=keys)
    number = kind.model._default_manager.filter(pk__in=failing.values("pk")).update(
        run_after=now, hinted_at=None
    )
    if kind.retries:
        number += resolve_name(kind.retries)(kind.dead().filter(pk__in=keys))
    return number


def dismiss(kind: WorkKind, keys: Collection[Any]) -> int:
    """Dismiss these dead work items without retrying them; return how many were dismissed."""
    if not kind.mortal:
        return 0
    return kind.dead().filter(pk__in=keys).update(dead_since=None)
