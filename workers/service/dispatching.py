"""The dispatcher: find in PostgreSQL the work that no hint has announced.

Beat wakes it every few seconds. Several dispatchers may run at once: each skips the rows that
another has locked, and if a second hint is sent for the same work, the worker finds the work
already claimed or done.
"""

import datetime
import functools
import threading
import time
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

import structlog
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import OperationalError, transaction
from django.db.models import F, IntegerField, Q, QuerySet, Value, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from memory.alerts import alert_actions
from memory.constraints import applicability, forecasts
from memory.integrations import merging
from memory.kernel import pauses
from memory.kernel.admission import quotas
from memory.kernel.daily_runs import is_daily, next_daily_run, run_daily
from memory.kernel.database import clock, timeouts
from memory.kernel.database.deletion import delete_oldest
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hosts, idempotency, leases
from memory.kernel.work.hints import HINT_SECONDS, send_hint
from memory.kernel.work.kinds import KINDS, WorkKind
from memory.llm import llm_calls
from memory.operations import alarms
from memory.privacy import retention
from memory.project import Outline
from memory.project.errors import RunError
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunTrigger
from workers.execution import constraints

logger = structlog.get_logger(__name__)

# Maximum number of rows of each kind handled per tick; the next tick handles more.
BATCH = 500
# Time after which a hint is sent again: by then, a hint that nobody received has expired.
HINT_AGAIN = datetime.timedelta(seconds=HINT_SECONDS)
# Maximum number of waiting runs caused by changed workspace constraints, so that other runs get
# their turn no matter how many users there are.
WORKSPACE_RUNS = 100
# Delay before the next attempt if no run could be queued for a user.
AGAIN = datetime.timedelta(hours=1)
# The next daily run is always due sooner than this.
OVERSLEPT = datetime.timedelta(days=2)
# While runs wait, forecasts and backtests yield to them for at most this long.
PATIENCE = datetime.timedelta(seconds=30)
# Constraint runs get this many times as many attempts as other runs before they fail permanently.
CONSTRAINTS_PATIENCE = 20

# While a tick runs in this process, other ticks are dropped. A tick that hangs blocks them for at
# most this many seconds.
LONGEST_TICK_SECONDS = 60.0
_lock = threading.Lock()
_busy_until = 0.0


def dispatch() -> dict[str, int]:
    """Queue work that is due, close work that failed permanently, and send hints for waiting work.

    Also wakes snoozed alerts and escalates alerts that are due, closes language model calls whose
    workers are gone, and deletes old idempotency keys, webhook messages and backtests, and whatever
    exceeds a workspace's retention limits. Returns the number of rows that each step found. Returns
    an empty dict while another thread of this process is dispatching, since ticks that pile up
    would leave no thread for anything else, or while this process's clock is wrong. If a step
    fails, the others still run, and the first error is raised at the end.
    """
    global _busy_until
    with _lock:
        if time.monotonic() < _busy_until:
            return {}
        _busy_until = time.monotonic() + LONGEST_TICK_SECONDS
    try:
        return _dispatch() if clock.is_right() else {}
    finally:
        _busy_until = 0.0


def _dispatch() -> dict[str, int]:
    alarms.beat(alarms.DISPATCHER)
    steps: dict[str, Callable[[], int]] = {
        "daily": queue_runs_by_the_clock,
        "overslept": wake_oversleepers,
        "changed": queue_runs_of_changed_constraints,
        "woken": lambda: alert_actions.wake(BATCH),
        "escalated": lambda: alert_actions.escalate(BATCH),
        "abandoned": abandon_hopeless_runs,
        "merged": merging.close_late_runs,
        "orphaned": free_work_of_silent_hosts,
        **{kind.name: functools.partial(hint_work, kind) for kind in KINDS.values()},
        "interrupted": lambda: llm_calls.close_interrupted(BATCH),
        "forgotten": _forget,
        "counted": quotas.count_when_due,
        "outlived": lambda: retention.purge(BATCH),
    }
    counts, errors = {}, list[Exception]()
    for name, step in steps.items():
        try:
            counts[name] = step()
        except Exception as error:
            if isinstance(error, OperationalError) and not timeouts.answers(error):
                raise  # without a database no step can run
            logger.exception("dispatch_failed", step=name)
            errors.append(error)
    if errors:
        raise errors[0]
    return counts


def _forget() -> int:
    purged: list[int] = [resolve_name(kind.purges)(BATCH) for kind in KINDS.values() if kind.purges]
    # What was sent in an expired session is offered again after the next sign-in, for a week.
    sessions = Session.objects.filter(expire_date__lt=timezone.now() - datetime.timedelta(days=7))
    deleted = delete_oldest(sessions, "expire_date", BATCH)
    return idempotency.purge(BATCH) + deleted + sum(purged)


def queue_runs_by_the_clock() -> int:
    """Queue a constraint run for every user whose scheduled run is due.

    A run is due at the daily hour, some minutes after the last run, or at a time given by a
    forecast. The next run will be the daily one, unless this run finds that another time is needed.
    A user without constraints to run is not due again until there are some.
    """
    now = timezone.now()
    with transaction.atomic():
        users = _lock_due("constraints_due_at", now, BATCH)
        _one_by_one(users, lambda user: _run_by_the_clock(user, now), "constraints_due_at", now)
    return len(users)


def _lock_due(column: str, now: datetime.datetime, most: int) -> list[MemoryUser]:
    """Lock the first `most` users, in fair order, whose constraints are due by this column.

    They come with their heads and forecasts, except for the large columns.
    """
    due = MemoryUser.objects.filter(
        ~pauses.are_paused("pk", "workspace"),
        head__isnull=False,
        redacting_since=None,
        merged_into=None,
        **{f"{column}__lte": now},
    )
    users = defer_large(due, "head", "forecast", keep=["head__outline"])
    return list(
        users.filter(pk__in=in_turn(due, column, most, workspace="workspace"))
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .order_by(column)
    )


def _run_by_the_clock(user: MemoryUser, now: datetime.datetime) -> None:
    assert user.constraints_due_at is not None
    daily = is_daily(user, user.constraints_due_at, now)
    trigger = RunTrigger.DAILY if daily else RunTrigger.INSTANT
    if _is_foreseen(user):
        trigger = RunTrigger.FORECAST
    wanted = user.head is not None and applicability.wants_constraints_run(user.head)
    user.constraints_due_at = next_daily_run(user, now) if wanted else None
    user.save(update_fields=["constraints_due_at"])
    if wanted:
        runs.queue(user, RunKind.CONSTRAINTS, trigger, checkpoint=user.head)


def _one_by_one(
    users: Sequence[MemoryUser],
    do: Callable[[MemoryUser], None],
    column: str,
    now: datetime.datetime,
) -> None:
    """Call `do` for each of these users; where it fails, set `column` to when to try again.

    A failure for one user does not affect the others. Call this function in a transaction.
    """
    for user in users:
        try:
            with transaction.atomic():
                do(user)
        except Exception as error:
            if isinstance(error, OperationalError) and not timeouts.answers(error):
                raise
            logger.exception("user_passed_over", user=user.pk)
            setattr(user, column, now + AGAIN)
            user.save(update_fields=[column])


def wake_oversleepers() -> int:
    """Restore the daily run for users whose next run is later than any forecast allows.

    Either forecasts were shortened or switched off after that run was scheduled, or the clock was
    wrong when it was scheduled.
    """
    latest = timezone.now() + forecasts.horizon() / 2 + OVERSLEPT
    with transaction.atomic():
        sleeping = MemoryUser.objects.select_for_update(skip_locked=True, no_key=True)
        late = sleeping.filter(constraints_due_at__gt=latest).order_by("-constraints_due_at")
        users = list(late[:BATCH])
        for user in users:
            run_daily(user)
    return len(users)


def _is_foreseen(user: MemoryUser) -> bool:
    forecast = getattr(user, "forecast", None)
    return forecast is not None and forecast.wakes_at == user.constraints_due_at


def hint_work(kind: WorkKind) -> int:
    """Send hints for waiting work of a kind, taking the workspaces in turn; return how many.

    Of work with a limit, no more is begun than may be in progress at a time. While runs wait, work
    that yields to them is begun only if it has waited for PATIENCE.
    """
    if kind.hinted:
        return _hint_rows(kind, resolve_name(kind.hinted)())
    waiting, most, patience = kind.work(), BATCH, HINT_AGAIN
    if kind.most_beside_runs is not None and runs.are_waiting():
        patience = PATIENCE
        most = _room(waiting, kind.most_beside_runs)
        waiting = waiting.filter(**{f"{kind.since}__lte": timezone.now() - PATIENCE})
    elif kind.most is not None:
        most = _room(waiting, kind.most)
    return _hint(kind, waiting, most, patience)


def _room(work: QuerySet[Any], most: int) -> int:
    """Return how many more rows of `work` may be started; those just hinted count as running."""
    now = timezone.now()
    begun = Q(lease_expires_at__gt=now) | Q(hinted_at__gt=now - HINT_AGAIN)
    return max(most - work.filter(begun).count(), 0)


def _hint_rows(kind: WorkKind, rows: QuerySet[Any]) -> int:
    """Send a hint for each of these rows, which are not work themselves."""
    turns = in_turn(rows, "pk", BATCH, workspace="workspace")
    for key, workspace_pk in turns.items():
        send_hint(kind.name, str(key), workspace_pk=workspace_pk)
    return len(turns)


def queue_runs_of_changed_constraints() -> int:
    """Queue runs for users affected by a changed workspace constraint, a few at a time."""
    queued = Run.objects.unfinished().filter(trigger=RunTrigger.WORKSPACE)
    room = WORKSPACE_RUNS - queued.count()
    if room <= 0:
        return 0
    now = timezone.now()
    with transaction.atomic():
        users = _lock_due("constraints_changed_at", now, room)
        MemoryUser.objects.filter(pk__in=[user.pk for user in users]).update(
            constraints_changed_at=None
        )
        _one_by_one(users, _run_if_concerned, "constraints_changed_at", now)
    return len(users)


def _run_if_concerned(user: MemoryUser) -> None:
    if user.head and applicability.concern(user, Outline.from_json(user.head.outline)):
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.WORKSPACE, checkpoint=user.head)


def free_work_of_silent_hosts() -> int:
    """Let other sandbox hosts do the work that is held by those without a heartbeat.

    Otherwise it would wait until the leases expire.
    """
    kinds = [kind for kind in KINDS.values() if kind.queue == hosts.SHARED_QUEUE]
    processes = hosts.silent_processes()
    return sum(leases.expire(kind.work(), process) for kind in kinds for process in processes)


def abandon_hopeless_runs() -> int:
    """Close the runs that have been attempted too often, and notify the callers waiting for them.

    Constraint runs are retried for hours, since no caller would request them again. When they fail
    permanently, staff get an alert.
    """
    most = settings.UAC_MAX_ATTEMPTS
    patient = Q(kind=RunKind.CONSTRAINTS, attempts__gte=most * CONSTRAINTS_PATIENCE)
    hopeless = (
        Run.objects.unfinished()
        .filter(leases.free(timezone.now()))
        .filter(patient | (~Q(kind=RunKind.CONSTRAINTS) & Q(attempts__gte=most)))
        .select_related("checkpoint")
    )
    abandoned = 0
    for run in hopeless[:BATCH]:
        error = RunError(
            type="abandoned",
            message=f"failed permanently after {run.attempts} attempts:"
            f" {run.last_error or 'no error was recorded'}",
            infrastructure=True,
        )
        try:
            with transaction.atomic():
                if run.kind == RunKind.CONSTRAINTS:
                    constraints.report_failure(run, error)
                runs.finish(run, runs.Result(outcome=RunOutcome.ABANDONED, error=error))
        except leases.LeaseLost:
            continue
        abandoned += 1
    return abandoned


def _hint(kind: WorkKind, work: QuerySet[Any], most: int, patience: datetime.timedelta) -> int:
    now = timezone.now()
    # If the last hint is so old, it must have been lost.
    unheard = Q(hinted_at=None) | Q(hinted_at__lte=now - patience)
    work = work.filter(leases.free(now)).filter(unheard)
    turns = in_turn(work, "run_after", most, workspace=kind.workspace)
    with transaction.atomic():
        rows = work.filter(pk__in=turns)
        waiting = {
            row.pk: row
            for row in rows.select_for_update(skip_locked=True, no_key=True, of=("self",))
        }
        work.model._default_manager.filter(pk__in=waiting).update(hinted_at=now)
    for pk, workspace_pk in turns.items():
        if pk in waiting:
            value = getattr(waiting[pk], kind.key)
            key = value if isinstance(value, int) else str(value)
            run_kind = str(getattr(waiting[pk], "kind", ""))
            send_hint(kind.name, key, workspace_pk=workspace_pk, run_kind=run_kind)
    return len(waiting)


def in_turn(
    rows: QuerySet[Any], order: str, most: int, *, workspace: str | None
) -> dict[Any, int | None]:
    """Return the keys of the first `most` rows in fair order, each with its workspace's key.

    The first row of each workspace comes first, then the second of each, and so on, so that no
    workspace has to wait for all rows of another. `workspace` is the field path from a row to its
    workspace, or None if the rows have none.
    """
    of_workspace = F(workspace) if workspace else Value(None, output_field=IntegerField())
    turn = Window(RowNumber(), partition_by=of_workspace, order_by=F(order).asc())
    ranked = rows.order_by().annotate(turn=turn, of_workspace=of_workspace)
    return dict(ranked.order_by("turn", order).values_list("pk", "of_workspace")[:most])
