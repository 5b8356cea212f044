"""All the kinds of work that workers do, and which work items of each kind are stuck.

Work is *waiting* while a worker could claim it but none has, *held* while a worker has claimed it,
*failing* after several unsuccessful attempts, and *dead* once it has failed permanently: dead work
is retried only if staff request it. Failing work is retried forever at increasing intervals, except
for runs, webhook messages, forecasts and backtests, which eventually fail permanently.
"""

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Count, Min, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from memory import merging
from memory.constraints import workspace_constraints
from memory.delivery import delivery_attempts, outbox, staff_mail
from memory.models import Backtest, Delivery, Forecast, Run
from memory.models.leased import LeasedWork
from memory.models.runs import BY_MODEL
from memory.models.users import LaneName
from memory.models.webhooks import DeliveryState
from memory.privacy import redaction, user_erasure
from memory.recall.search import announcing
from memory.temporal import backtests, forecasts
from memory.work import lanes, leases, runs


def _forecasts_again(work: QuerySet[Any]) -> int:
    now = timezone.now()
    return work.update(due_at=now, run_after=now, hinted_at=None, dead_since=None)


@dataclass(frozen=True)
class WorkKind:
    """A kind of work. `work` selects all work of this kind that has to be done, now or later.

    `since` is the name of the column that stores when the work became due, or "" if there is no
    such column. `whose` is the field that refers to the work's owner: a user, a workspace or
    another row. Work that is not `urgent` yields to other work. `mortal` selects work that may fail
    permanently, and `again` retries such work.
    """

    name: str
    title: str
    queue: str
    work: Callable[[], QuerySet[Any]]
    _: KW_ONLY
    since: str = "due_at"
    whose: str = "user"
    urgent: bool = True
    # Selects the work that a worker may begin now; None means all work that no worker holds.
    ready: Callable[[], QuerySet[Any]] | None = None
    mortal: Callable[[], QuerySet[Any]] | None = None
    again: Callable[[QuerySet[Any]], int] | None = None

    @cached_property
    def model(self) -> type[LeasedWork]:
        """The model whose rows represent the work."""
        model: type[LeasedWork] = self.work().model
        return model

    def failing(self) -> QuerySet[Any]:
        """Select work that has failed several times and is still being retried."""
        return self.work().filter(attempts__gte=settings.UAC_STUCK_ATTEMPTS)

    def dead(self) -> QuerySet[Any]:
        """Select work that has failed permanently."""
        if self.mortal is None:
            return self.model._default_manager.none()
        return self.mortal().filter(dead_since__isnull=False)

    def within(self, narrow: Callable[[QuerySet[Any]], QuerySet[Any]]) -> "WorkKind":
        """Return the same kind, restricted to the work that `narrow` keeps."""
        ready, mortal = self.ready, self.mortal
        return replace(
            self,
            work=lambda: narrow(self.work()),
            ready=None if ready is None else lambda: narrow(ready()),
            mortal=None if mortal is None else lambda: narrow(mortal()),
        )


def _pending_messages() -> QuerySet[Delivery]:
    return Delivery.objects.filter(state=DeliveryState.PENDING, endpoint__enabled=True)


KINDS: Mapping[str, WorkKind] = {
    kind.name: kind
    for kind in (
        WorkKind("records", "typed records", "sandbox", lambda: lanes.due(LaneName.RECORDS)),
        WorkKind(
            "structure",
            "language model work",
            "llm",
            lambda: lanes.with_model(lanes.due(LaneName.STRUCTURE)),
            urgent=False,
        ),
        WorkKind(
            "runs",
            "runs",
            "sandbox",
            runs.waiting,
            since="queued_at",
            mortal=lambda: Run.objects.exclude(kind__in=BY_MODEL),
            again=runs.try_again,
        ),
        WorkKind(
            "questions",
            "questions",
            "llm",
            runs.questions,
            since="queued_at",
            mortal=lambda: Run.objects.filter(kind__in=BY_MODEL),
            again=runs.try_again,
        ),
        WorkKind("redactions", "redactions", "sandbox", redaction.waiting),
        WorkKind("erasures", "user erasures", "default", user_erasure.waiting),
        WorkKind("merges", "user merges", "default", merging.waiting),
        WorkKind(
            "deliveries",
            "webhook messages",
            "default",
            _pending_messages,
            ready=lambda: delivery_attempts.sendable(timezone.now()),
            since="created_at",
            whose="endpoint",
            mortal=Delivery.objects.all,
            again=outbox.try_again,
        ),
        WorkKind(
            "versions",
            "unchecked workspace constraints",
            "sandbox",
            workspace_constraints.unjudged,
            since="created_at",
            whose="constraint",
        ),
        WorkKind(
            "mails",
            "emails to staff",
            "default",
            lambda: staff_mail.waiting(timezone.now()),
            since="",
            whose="staff",
        ),
        WorkKind("indexes", "search indexes", "default", announcing.waiting, urgent=False),
        WorkKind(
            "forecasts",
            "forecasts",
            "sandbox",
            forecasts.waiting,
            urgent=False,
            mortal=Forecast.objects.all,
            again=_forecasts_again,
        ),
        WorkKind(
            "backtests",
            "backtests",
            "sandbox",
            backtests.waiting,
            since="created_at",
            whose="workspace",
            urgent=False,
            mortal=Backtest.objects.all,
            again=backtests.try_again,
        ),
    )
}


STANDINGS = {
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


def standings(kinds: Iterable[WorkKind] | None = None) -> Iterator[WorkStatus]:
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
        for how, rows in by_standing(kind, now).items()
    ]
    found = {
        (row["of"], row["how"]): (row["number"], row["began"])
        for row in counts[0].union(*counts[1:], all=True)
    }
    for kind in kinds:
        (waiting, oldest), (held, longest), (failing, _), (dead, _) = (
            found.get((kind.name, how), (0, None)) for how in STANDINGS
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


def by_standing(kind: WorkKind, now: datetime.datetime) -> Mapping[str, QuerySet[Any]]:
    """Map each status (`waiting`, `held`, `failing`, `dead`) to this kind's work in that status."""
    work = kind.work()
    return {
        "waiting": kind.ready() if kind.ready else work.filter(leases.free(now)),
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
    whose: models.Model
    is_dead: bool
    since: datetime.datetime | None
    attempts: int
    again_at: datetime.datetime | None
    error: str


def found(kind: WorkKind, limit: int) -> Sequence[Stuck]:
    """Return up to `limit` stuck work items: dead ones, latest first, then failing ones."""
    given_up = kind.dead().select_related(kind.whose)
    if kind.mortal is not None:
        given_up = given_up.order_by("-dead_since")
    dead = [_stuck(kind, row, is_dead=True) for row in given_up[:limit]]
    failing = kind.failing().select_related(kind.whose).order_by("-attempts", "pk")
    return [*dead, *(_stuck(kind, row, is_dead=False) for row in failing[: limit - len(dead)])]


def _stuck(kind: WorkKind, row: Any, *, is_dead: bool) -> Stuck:
    return Stuck(
        kind=kind,
        row=row,
        whose=getattr(row, kind.whose),
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
    if kind.again is not None:
        number += kind.again(kind.dead().filter(pk__in=keys))
    return number


def dismiss(kind: WorkKind, keys: Collection[Any]) -> int:
    """Dismiss these dead work items without retrying them; return how many were dismissed."""
    if kind.mortal is None:
        return 0
    return kind.dead().filter(pk__in=keys).update(dead_since=None)
