"""Runs: every execution is a row before it starts and stays one afterwards."""

import datetime
import time
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from memory import leases
from memory.hints import hint, signal_done, wait_done
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger
from memory.users import run_daily

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
) -> Run:
    """Queue a run and, once committed, tell the workers. `instant` defaults to now.

    Whatever becomes of one of the constraints, they run again at the next daily hour, unless what
    it finds is foreseen to hold longer.
    """
    now = timezone.now()
    if kind == RunKind.CONSTRAINTS:
        run_daily(user)
    run = Run.objects.create(
        user=user,
        kind=kind,
        trigger=trigger,
        checkpoint=checkpoint,
        instant=instant or now,
        input=input or {},
        answer_key=answer_key,
        hinted_at=now,
    )
    if kind == RunKind.ASK:
        hint(ANSWER_TASK, str(run.pk))
    else:
        hint(TASK, str(run.pk), user_pk=user.pk)
    return run


def waiting() -> QuerySet[Run]:
    """Return the runs that are not done, for the workers with sandboxes."""
    return Run.objects.exclude(status=RunStatus.DONE).exclude(kind=RunKind.ASK)


def questions() -> QuerySet[Run]:
    """Return the questions that are not answered yet, for the workers with language models."""
    return Run.objects.exclude(status=RunStatus.DONE).filter(kind=RunKind.ASK)


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


def claim(run_id: str, *, host: str = "") -> Run | None:
    """Claim the run for a host if it still waits and nobody holds it.

    It comes with its user and its checkpoint, and of both what an execution needs.
    """
    waiting = Run.objects.filter(pk=run_id).exclude(status=RunStatus.DONE)
    run = leases.claim(waiting, status=RunStatus.RUNNING, started_at=timezone.now(), host=host)
    if run is not None and run.checkpoint_id is not None:
        run.checkpoint = (
            Checkpoint.objects.select_related("user__workspace")
            .only(
                *("version", "tree", "outline", "user__user_id", "user__public_id"),
                *("user__time_zone", "user__workspace"),
            )
            .get(pk=run.checkpoint_id)
        )
        run.user = run.checkpoint.user
    return run


def finish(run: Run, result: Result) -> None:
    """Store what the run came to and wake who waits for it; raises LeaseLost if it lost its claim.

    Call it in the transaction that writes the run's effects, so that both happen or neither.
    """
    leases.write(
        run,
        status=RunStatus.DONE,
        outcome=result.outcome,
        output=result.output,
        error=result.error,
        stdout=result.stdout,
        runner=result.runner,
        timings=result.timings,
        memory_bytes=result.memory_bytes,
        finished_at=timezone.now(),
        lease_owner="",
        lease_expires_at=None,
    )
    run.status, run.outcome = RunStatus.DONE, result.outcome
    transaction.on_commit(lambda: signal_done(run.pk), robust=True)


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
