"""Celery tasks: thin adapters. A message hints that a row is waiting; the row says what to do.

Any task may run twice or be killed at any line: claims are leases, writes are fenced, and the
dispatcher finds unfinished work again.
"""

import functools

import structlog
from celery import shared_task

from memory import checkpoints
from memory.llm import llm_turns
from memory.models import Run
from memory.models.runs import RunKind, RunOutcome
from memory.privacy import user_erasure
from memory.recall.search import index_maintenance
from memory.temporal import history, states
from memory.work import leases, runs
from workers import merging
from workers.authoring import answering, completing, lane
from workers.commits import imports, proposals, redactions, typed_entries
from workers.delivery import delivering, mailing
from workers.execution import backtesting, constraints, forecasting, outlook, queries
from workers.gate import workspace_constraints
from workers.service import dispatching, hosting

logger = structlog.get_logger(__name__)

EXECUTORS = {
    RunKind.CONSTRAINTS: constraints.execute,
    RunKind.CONSTRAINT: constraints.try_one,
    RunKind.QUERY: queries.execute,
    RunKind.ASK: answering.execute,
    RunKind.FOLLOW_UP: completing.execute,
    RunKind.PROPOSAL: proposals.execute,
    RunKind.IMPORT: imports.execute,
    RunKind.OUTLOOK: outlook.execute,
}
# Kinds of runs that only read a version.
READING = (RunKind.CONSTRAINTS, RunKind.CONSTRAINT, RunKind.QUERY, RunKind.ASK, RunKind.OUTLOOK)


@shared_task(name="workers.tasks.dispatch")
def dispatch() -> None:
    """Find the work that no hint has announced."""
    found = dispatching.dispatch()
    if any(found.values()):
        logger.info("dispatched", **found)


@shared_task(name="workers.tasks.checkpoint_records")
def checkpoint_records(user_pk: int) -> None:
    """Compile the user's pending typed entries into the next checkpoint."""
    typed_entries.checkpoint_pending(user_pk)


@shared_task(name="workers.tasks.redact")
def redact(user_pk: int) -> None:
    """Remove redacted content, and everything that relies on it, from a user's project."""
    redactions.work_on(user_pk)


@shared_task(name="workers.tasks.erase")
def erase(erasure_id: str) -> None:
    """Continue erasing a user."""
    user_erasure.work_on(erasure_id)


@shared_task(name="workers.tasks.merge")
def merge(merge_pk: int) -> None:
    """Append a merged user's entries to the remaining user's log."""
    merging.work_on(merge_pk)


@shared_task(name="workers.tasks.structure")
def structure(user_pk: int) -> None:
    """Have the language model process a user's entries."""
    lane.work_on(user_pk)


@shared_task(name="workers.tasks.mail_staff")
def mail_staff(subscription_pk: int) -> None:
    """Email a staff member about changes in alerts."""
    mailing.send(subscription_pk)


@shared_task(name="workers.tasks.deliver")
def deliver(endpoint_pk: str) -> None:
    """Send a webhook endpoint's waiting messages."""
    delivering.deliver(endpoint_pk)


@shared_task(name="workers.tasks.judge_workspace_constraint")
def judge_workspace_constraint(version_id: str) -> None:
    """Check a new version of a workspace constraint, as the gate does."""
    workspace_constraints.judge_waiting(version_id)


@shared_task(name="workers.tasks.forecast")
def forecast(user_pk: int) -> None:
    """Make a forecast for a user's constraints."""
    forecasting.make(user_pk)


@shared_task(name="workers.tasks.answer")
def answer(run_id: str) -> None:
    """Have a language model answer a question when it is the workspace's turn."""
    of = Run.objects.filter(pk=run_id).values_list("user__workspace", flat=True).first()
    if of is None:
        return
    run = runs.claim(run_id, take=functools.partial(llm_turns.claim, workspace_pk=of))
    if run is not None:
        try:
            _carry_out(run)
        finally:
            llm_turns.pass_on(of)


@shared_task(name="workers.tasks.index_log")
def index_log(user_pk: int) -> None:
    """Index the entries in a user's log that aren't indexed yet."""
    index_maintenance.keep_up(user_pk)


@shared_task(name="workers.tasks.backtest")
def backtest(backtest_id: str) -> None:
    """Continue a backtest of a constraint."""
    backtesting.go_on(backtest_id)


@shared_task(name="workers.tasks.execute_run")
def execute_run(run_id: str) -> None:
    """Execute a queued run."""
    run = runs.claim(run_id, host=hosting.name())
    if run is not None:
        _carry_out(run)


def _carry_out(run: Run) -> None:
    whose = {"run": str(run.pk), "kind": run.kind, "user": run.user_id}
    with structlog.contextvars.bound_contextvars(**whose):
        try:
            with leases.kept(run):
                execute(run)
        except leases.LeaseLost:
            logger.warning("lease_lost")
        except Exception as error:
            leases.fail(run, f"{type(error).__name__}: {error}")
            logger.exception("run_failed")
            raise
        else:
            logger.info("run_done", outcome=run.outcome)


def execute(run: Run) -> None:
    """Execute a run; if its state was redacted or can't be determined, store only that error."""
    try:
        earlier = run.checkpoint if run.checkpoint_id != run.user.head_id else None
        if earlier is not None and run.kind in READING:
            history.refuse_redacted(earlier)
        EXECUTORS[RunKind(run.kind)](run)
    except (checkpoints.Redacted, states.CannotBeTold) as gone:
        kind = "redacted" if isinstance(gone, checkpoints.Redacted) else "cannot_be_told"
        error = {"type": kind, "message": str(gone), "path": None, "line": None}
        runs.finish(run, runs.Result(outcome=RunOutcome.USER_ERROR, error=error))
