"""Runs: every execution is recorded as a row before it starts, and the row is kept afterwards."""

import datetime
import functools
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memory.kernel import pauses
from memory.kernel.admission import quotas, slots
from memory.kernel.daily_runs import run_daily
from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.refused import Erased
from memory.kernel.settings import environment
from memory.kernel.users import undisturbed, unpaused
from memory.kernel.work import hints, hosts, leases
from memory.kernel.work.hints import hint, signal_done, wait_done
from memory.project.errors import RunError
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import (
    ASKED_FOR,
    BY_MODEL,
    Run,
    RunKind,
    RunOutcome,
    RunStatus,
    RunTrigger,
)

# If no signal arrives, a worker that is waiting for a run reads the run's row at this interval, in
# seconds, and never more often than every MIN_WAIT_SECONDS.
WAIT_SECONDS = 5.0
# The type of the error of a run that was closed before it was done.
CLOSED = "closed"
MIN_WAIT_SECONDS = 0.2
# The columns that change during a run; requests waiting for the run reload them.
CHANGING = (
    *("status", "outcome", "output", "error", "stdout", "runner", "timings", "memory_bytes"),
    *("attempts", "started_at", "finished_at"),
)
_CHANGED = Statement(lambda: Run.objects.filter(pk=Parameter("pk")).order_by(), *CHANGING)
# Below this share of the quota, runs are admitted based on the last count plus the runs that this
# process has admitted since.
FAR = 0.5
# Seconds after which to ask again for a run that was refused.
RUNS_WAIT = 5.0
# Counts requested runs that are not done, up to the limit. Paused users' runs can be left out: such
# runs aren't executed, so they delay nobody.
REQUESTED = """
SELECT count(*) FROM (
    SELECT FROM memory_run AS run JOIN memory_memoryuser AS person ON person.id = run.user_id
    WHERE person.workspace_id = %s AND run.trigger IN (%s, %s) AND NOT run.status = %s
        AND (%s OR NOT EXISTS (SELECT FROM memory_pause AS pause
            WHERE pause.user_id = person.id AND pause.resumed_at IS NULL))
    LIMIT %s
) AS asked_for
"""
# For each workspace: the time until which its count of requested runs can be relied on, the count
# itself, and the number of runs below which no recount is needed.
_requested: dict[int, tuple[float, int, float]] = {}


@dataclass(frozen=True, kw_only=True)
class Result:
    """An execution's result."""

    outcome: RunOutcome
    output: Any = None
    error: RunError | None = None
    stdout: str = ""
    runner: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    test_gaps: Sequence[str] = ()


def queue(
    user: MemoryUser,
    kind: RunKind,
    trigger: RunTrigger,
    *,
    checkpoint: Checkpoint | None,
    instant: datetime.datetime | None = None,
    input: dict[str, Any] | None = None,
    answer_key: str = "",
    asked_by: str = "",
) -> Run:
    """Queue a run and, once that is committed, wake a worker. `instant` defaults to now.

    A constraint run also schedules the next daily run, which the subsequent forecast may postpone.
    `asked_by` is the name of the staff member who requested the run, if any. Raises
    `LimitExceeded` if too many requested runs are already queued or running.
    """
    now = timezone.now()
    if trigger in ASKED_FOR:
        check_runs(user)
    if kind == RunKind.CONSTRAINTS:
        run_daily(user)
    run = Run.objects.create(
        user=user,
        kind=kind,
        trigger=trigger,
        asked_by=asked_by,
        checkpoint=checkpoint,
        instant=instant or now,
        input=input or {},
        answer_key=answer_key,
        hinted_at=now,
    )
    _hint(run)
    return run


def _hint(run: Run) -> None:
    """Wake a worker for the run, once the transaction has committed."""
    user, of_model = run.user, run.kind in BY_MODEL
    hint(
        "questions" if of_model else "runs",
        str(run.pk),
        workspace_pk=user.workspace_id,
        user_pk=None if of_model else user.pk,
        run_kind=run.kind,
    )


def waiting() -> QuerySet[Run]:
    """Select the unfinished runs that a sandbox worker may execute."""
    return _open().exclude(kind__in=BY_MODEL)


def questions() -> QuerySet[Run]:
    """Select the unfinished questions that a worker with a language model may answer."""
    return _open().filter(kind__in=BY_MODEL)


def select_for_sandboxes() -> QuerySet[Run]:
    """Select all runs that sandbox workers execute."""
    return Run.objects.exclude(kind__in=BY_MODEL)


def select_for_models() -> QuerySet[Run]:
    """Select all runs that workers with a language model execute."""
    return Run.objects.filter(kind__in=BY_MODEL)


def _open() -> QuerySet[Run]:
    """Select the unfinished runs of users who are not paused, merged or being redacted.

    Runs that a language model requested as part of other work continue during a pause.
    """
    of_work = Q(trigger=RunTrigger.MODEL)
    return Run.objects.unfinished().filter(undisturbed(), of_work | unpaused())


_OPEN = leases.ClaimQuery(lambda: _open().filter(pk=Parameter("pk")))
# Reads the columns of a version and its user that an execution needs.
_TO_EXECUTE = Statement(
    lambda: Checkpoint.objects.filter(pk=Parameter("pk")).order_by(),
    *("version", "tree", "outline", "user__user_id", "user__public_id", "user__time_zone"),
    *("user__head_id", "user__workspace__*"),
)


def queue_constraints(user: MemoryUser, checkpoint: Checkpoint) -> None:
    """Queue a constraint run on a new version.

    If such a run is already queued, it is moved to the new version and keeps its position in the
    queue, so that even users whose projects change all the time get alerts.
    """
    waiting = Run.objects.filter(
        user=user,
        kind=RunKind.CONSTRAINTS,
        trigger=RunTrigger.CHECKPOINT,
        status=RunStatus.QUEUED,
    )
    if not waiting.update(checkpoint=checkpoint, instant=timezone.now()):
        queue(user, RunKind.CONSTRAINTS, RunTrigger.CHECKPOINT, checkpoint=checkpoint)


def are_waiting() -> bool:
    """Return whether any run is waiting for a sandbox, in which case other work must yield."""
    return waiting().filter(leases.free(timezone.now())).exists()


def claim(run_id: str, *, take: Callable[..., Run | None] | None = None) -> Run | None:
    """Claim the run for this process if it is waiting and no worker holds it.

    Runs of users who are paused or have a redaction in progress can't be claimed. The run is
    returned with the columns of its checkpoint and user that an execution needs. If `take` is
    given, it is called instead of `leases.claim`.
    """
    columns = {"status": RunStatus.RUNNING, "started_at": timezone.now(), "host": hosts.own}
    if take is None:
        run = _OPEN.claim(columns, pk=uuid.UUID(run_id))
    else:
        run = take(_open().filter(pk=run_id), **columns)
    if run is not None and run.checkpoint_id is not None:
        version = _TO_EXECUTE.first(pk=run.checkpoint_id)
        if version is None:
            return None  # the user has just been erased
        run.checkpoint, run.user = version, version.user
    return run


def close(chosen: QuerySet[Run], why: str) -> None:
    """Close the unfinished runs in `chosen`, even if a worker holds them; `why` is the reason."""
    error = RunError(type=CLOSED, message=why, infrastructure=True)
    _close(chosen, RunOutcome.SUPERSEDED, error)


def _close(chosen: QuerySet[Run], outcome: RunOutcome, error: RunError) -> int:
    """Close the unfinished runs in `chosen` with this outcome; return how many were closed."""
    closed = 0
    for pk in list(chosen.exclude(status=RunStatus.DONE).values_list("pk", flat=True)):
        closed += (
            Run.objects.unfinished()
            .filter(pk=pk)
            .update(
                status=RunStatus.DONE,
                outcome=outcome,
                error=error.to_json(),
                **leases.REVOKED,
                finished_at=timezone.now(),
            )
        )
        transaction.on_commit(functools.partial(signal_done, pk), robust=True)
    return closed


class NotToBeCancelled(Exception):
    """The run can't be cancelled: it is done, or the server started it itself."""


class NotToBeRetried(Exception):
    """The run can't be retried: it did not fail permanently."""


def cancel(run: Run, *, by: str) -> None:
    """Cancel a requested run; a worker that holds it can no longer write results.

    Raises NotToBeCancelled if nobody requested the run, or if it is done.
    """
    if run.trigger not in ASKED_FOR:
        raise NotToBeCancelled(
            "Only requested runs can be cancelled: the server started this run itself."
        )
    if run.status == RunStatus.DONE:
        raise NotToBeCancelled(f"This run is already done: {run.get_outcome_display()}.")
    error = RunError(type="cancelled", message=f"Cancelled by {by}.")
    if not _close(Run.objects.filter(pk=run.pk), RunOutcome.CANCELLED, error):
        raise NotToBeCancelled("This run has just finished. Read it again.")


def retry(run: Run) -> None:
    """Requeue a run; raises NotToBeRetried unless it has failed permanently."""
    if not try_again(Run.objects.filter(pk=run.pk)):
        raise NotToBeRetried(
            "Only abandoned runs, which are no longer retried automatically, can be retried by"
            " hand. Send a new request instead."
        )
    _hint(run)


def finish(run: Run, result: Result) -> None:
    """Store the run's result and, once that is committed, wake the requests waiting for it.

    Call this in the transaction that writes the run's effects, so that either both are stored or
    neither is. Raises LeaseLost if the caller has lost its lease on the run.
    """
    now = timezone.now()
    leases.release(
        run,
        status=RunStatus.DONE,
        outcome=result.outcome,
        dead_since=now if result.outcome == RunOutcome.ABANDONED else None,
        output=result.output,
        error=result.error.to_json() if result.error else None,
        stdout=result.stdout,
        runner=result.runner,
        timings=result.timings,
        memory_bytes=result.memory_bytes,
        test_gaps=list(result.test_gaps),
        finished_at=now,
    )
    run.status, run.outcome = RunStatus.DONE, result.outcome
    transaction.on_commit(lambda: signal_done(run.pk), robust=True)


def try_again(chosen: QuerySet[Run]) -> int:
    """Requeue permanently failed runs, except redacted ones; return how many were queued."""
    again = chosen.filter(outcome=RunOutcome.ABANDONED).exclude(error__type="redacted")
    return again.update(
        status=RunStatus.QUEUED,
        outcome="",
        error=None,
        finished_at=None,
        run_after=timezone.now(),
        hinted_at=None,
        attempts=0,
        dead_since=None,
    )


def wait(run: Run, seconds: float) -> None:
    """In a worker, wait up to `seconds` until the run is done; then refresh the run.

    Signals can get lost and Redis may be down, so the run's row is also read every few seconds.
    """
    deadline = time.monotonic() + seconds
    while run.status != RunStatus.DONE and (left := deadline - time.monotonic()) > 0:
        started = time.monotonic()
        wait_done(run.pk, min(left, WAIT_SECONDS))
        run.refresh_from_db(fields=("status", "outcome", "output", "error"))
        if run.status != RunStatus.DONE and time.monotonic() - started < MIN_WAIT_SECONDS:
            time.sleep(MIN_WAIT_SECONDS)


def wait_for(run: Run, limit: float) -> Run:
    """Wait up to `limit` seconds for the run to finish, and return it refreshed."""
    if limit > 0 and run.status != RunStatus.DONE:  # a repeated request's run may already be done
        with slots.WAITING.take(run.user.workspace_id) as admitted:
            if admitted:
                hints.wait_done(run.pk, limit)
        now = _CHANGED.first(pk=run.pk)
        if now is None:
            raise Erased
        for name in CHANGING:
            setattr(run, name, getattr(now, name))
    return run


def check_runs(user: MemoryUser) -> None:
    """Raise LimitExceeded if the user's workspace has its maximum number of runs queued or running.

    If the number of runs is far below the quota, a process does not recount on every call, so it
    misses the runs that other processes have just admitted.
    """
    now = time.monotonic()
    until, number, far = _requested.get(user.workspace_id, (0.0, 0, 0.0))
    if now < until and number < far:
        _requested[user.workspace_id] = (until, number + 1, far)
        return
    needed = ("public_id", *environment.QUOTAS.overridable)
    workspace = Workspace.objects.only(*needed).get(pk=user.workspace_id)
    quota = quotas.quotas_of(workspace)["max_waiting_runs"]
    number = count_requested(workspace, quota)
    if number >= quota and pauses.is_paused(user) is None:
        number = count_requested(workspace, quota, paused=False)
    if number >= quota:
        has = (
            "The number of queries, questions, proposals and imports that are queued or running is"
            f" {number:,}"
        )
        quotas.refuse_for_now(workspace, "max_waiting_runs", has, RUNS_WAIT)
    _requested[user.workspace_id] = (now + quotas.BELIEVED_SECONDS, number + 1, FAR * quota)


def count_requested(workspace: Workspace, most: int, *, paused: bool = True) -> int:
    """Count the unfinished runs that someone requested, up to `most`.

    Runs of paused users are included only if `paused` is set.
    """
    with connection.cursor() as cursor:
        cursor.execute(REQUESTED, [workspace.pk, *ASKED_FOR, RunStatus.DONE, paused, most])
        (number,) = cursor.fetchone()
    return int(number)
