"""Runs: every execution is a row before it starts and stays one afterwards."""

import datetime
import functools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from memory.admission import usage
from memory.database.statements import Parameter, Statement
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import ASKED_FOR, BY_MODEL, RunKind, RunOutcome, RunStatus, RunTrigger
from memory.users import run_daily, undisturbed, unpaused
from memory.work import leases
from memory.work.hints import hint, signal_done, wait_done

TASK = "workers.tasks.execute_run"
ANSWER_TASK = "workers.tasks.answer"
# A worker that waits for a run looks at its row so often, if no signal comes.
WAIT_SECONDS = 5.0
MIN_WAIT_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Result:
    """What an execution came to. `error` has a type, a message, a path and a line."""

    outcome: RunOutcome
    output: Any = None
    error: dict[str, Any] | None = None
    stdout: str = ""
    runner: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None


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
    """Queue a run and, once committed, tell the workers. `instant` defaults to now.

    Whatever becomes of one of the constraints, they run again at the next daily hour, unless what
    it finds is foreseen to hold longer. Raises `usage.Exceeded` for one too many of those that
    somebody asks for; `asked_by` names a member of the staff.
    """
    now = timezone.now()
    if trigger in ASKED_FOR:
        usage.check_runs(user)
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
    if kind in BY_MODEL:
        hint(ANSWER_TASK, str(run.pk), workspace_pk=user.workspace_id)
    else:
        hint(TASK, str(run.pk), workspace_pk=user.workspace_id, user_pk=user.pk, kind=kind)
    return run


def waiting() -> QuerySet[Run]:
    """Return the runs that can be done, for the workers with sandboxes."""
    return _open().exclude(kind__in=BY_MODEL)


def questions() -> QuerySet[Run]:
    """Return the questions that can be worked on, for the workers with language models."""
    return _open().filter(kind__in=BY_MODEL)


def _open() -> QuerySet[Run]:
    """What work that is under way asks for is done though its user is paused meanwhile."""
    of_work = Q(trigger=RunTrigger.MODEL)
    return Run.objects.exclude(status=RunStatus.DONE).filter(undisturbed(), of_work | unpaused())


_OPEN = leases.Work(lambda: _open().filter(pk=Parameter("pk")))
# Of a version, and of its user, what an execution needs.
_TO_EXECUTE = Statement(
    lambda: Checkpoint.objects.filter(pk=Parameter("pk")).order_by(),
    *("version", "tree", "outline", "user__user_id", "user__public_id", "user__time_zone"),
    *("user__head_id", "user__workspace__*"),
)


def queue_constraints(user: MemoryUser, checkpoint: Checkpoint) -> None:
    """Have the constraints run on a new version.

    A run that nobody has started yet moves on to it and keeps its place in the queue, so that
    somebody who writes all the time still gets alerts.
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
    """Tell whether a run waits for a sandbox, before which nothing else should be done."""
    return waiting().filter(leases.free(timezone.now())).exists()


def claim(
    run_id: str, *, host: str = "", take: Callable[..., Run | None] | None = None
) -> Run | None:
    """Claim the run for a host if it waits, nobody holds it, and nothing is being redacted.

    It comes with its user and its checkpoint, and of both what an execution needs. `take` is asked
    in place of `leases.claim`.
    """
    columns = {"status": RunStatus.RUNNING, "started_at": timezone.now(), "host": host}
    if take is None:
        run = _OPEN.claim(columns, pk=uuid.UUID(run_id))
    else:
        run = take(_open().filter(pk=run_id), **columns)
    if run is not None and run.checkpoint_id is not None:
        version = _TO_EXECUTE.first(pk=run.checkpoint_id)
        if version is None:
            return None  # the user was erased just now
        run.checkpoint, run.user = version, version.user
    return run


def close(chosen: QuerySet[Run], why: str) -> None:
    """End those of the runs that are not done, whoever works on them, and tell who waits for them
    to ask again."""
    error = {"type": "closed", "message": why, "path": None, "line": None, "infrastructure": True}
    _close(chosen, RunOutcome.SUPERSEDED, error)


def _close(chosen: QuerySet[Run], outcome: RunOutcome, error: dict[str, Any]) -> int:
    """Return how many there were to end."""
    closed = 0
    for pk in list(chosen.exclude(status=RunStatus.DONE).values_list("pk", flat=True)):
        closed += (
            Run.objects.filter(pk=pk)
            .exclude(status=RunStatus.DONE)
            .update(
                status=RunStatus.DONE,
                outcome=outcome,
                error=error,
                token=F("token") + 1,
                lease_owner="",
                lease_expires_at=None,
                finished_at=timezone.now(),
            )
        )
        transaction.on_commit(functools.partial(signal_done, pk), robust=True)
    return closed


class NotToBeCancelled(Exception):
    """The run is done, or nobody has asked for it."""


class NotToBeRetried(Exception):
    """The run was not given up."""


def cancel(run: Run, *, by: str) -> None:
    """End a run that somebody has asked for; whoever works on it writes nothing any more.

    Raises NotToBeCancelled.
    """
    if run.trigger not in ASKED_FOR:
        raise NotToBeCancelled("Nobody has asked for this run: it belongs to the server's work.")
    if run.status == RunStatus.DONE:
        raise NotToBeCancelled(f"This run is done already: {run.get_outcome_display()}.")
    error = {"type": "cancelled", "message": f"Cancelled by {by}.", "path": None, "line": None}
    if not _close(Run.objects.filter(pk=run.pk), RunOutcome.CANCELLED, error):
        raise NotToBeCancelled("This run was done just now: ask for it again.")


def retry(run: Run) -> None:
    """Queue a run again that was given up; raises NotToBeRetried."""
    if not try_again(Run.objects.filter(pk=run.pk)):
        raise NotToBeRetried(
            "Only a run that the server has given up (abandoned) is tried again; ask anew instead."
        )
    task = ANSWER_TASK if run.kind in BY_MODEL else TASK
    whose = {"workspace_pk": run.user.workspace_id, "user_pk": run.user_id}
    hint(task, str(run.pk), **whose, kind=run.kind)


def finish(run: Run, result: Result) -> None:
    """Store what the run came to and wake who waits for it; raises LeaseLost if it lost its claim.

    Call it in the transaction that writes the run's effects, so that both happen or neither.
    """
    now = timezone.now()
    leases.write(
        run,
        status=RunStatus.DONE,
        outcome=result.outcome,
        dead_since=now if result.outcome == RunOutcome.ABANDONED else None,
        output=result.output,
        error=result.error,
        stdout=result.stdout,
        runner=result.runner,
        timings=result.timings,
        memory_bytes=result.memory_bytes,
        finished_at=now,
        lease_owner="",
        lease_expires_at=None,
    )
    run.status, run.outcome = RunStatus.DONE, result.outcome
    transaction.on_commit(lambda: signal_done(run.pk), robust=True)


def try_again(chosen: QuerySet[Run]) -> int:
    """Queue runs again that were given up; return how many. What was redacted of stays as it is."""
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
    """Wait in a worker until the run is done, for `seconds` at most, and read it anew.

    Signals may be lost, and Redis be gone: it is looked at every few seconds all the same.
    """
    deadline = time.monotonic() + seconds
    while run.status != RunStatus.DONE and (left := deadline - time.monotonic()) > 0:
        asked = time.monotonic()
        wait_done(run.pk, min(left, WAIT_SECONDS))
        run.refresh_from_db(fields=("status", "outcome", "output", "error"))
        if run.status != RunStatus.DONE and time.monotonic() - asked < MIN_WAIT_SECONDS:
            time.sleep(MIN_WAIT_SECONDS)
