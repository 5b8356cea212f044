"""Execute runs, each kind in its own way."""

import structlog

from memory.project.errors import RunError
from memory.versions import checkpoints, computed_states, past_states, runs
from memory.versions.models.runs import Run, RunKind, RunOutcome
from workers.authoring import answering
from workers.commits import imports, proposals
from workers.execution import constraints, outlook, queries

logger = structlog.get_logger(__name__)

EXECUTORS = {
    RunKind.CONSTRAINTS: constraints.execute,
    RunKind.CONSTRAINT: constraints.try_one,
    RunKind.QUERY: queries.execute,
    RunKind.ASK: answering.execute,
    RunKind.PROPOSAL: proposals.execute,
    RunKind.IMPORT: imports.execute,
    RunKind.OUTLOOK: outlook.execute,
}
# Kinds of runs that only read a version.
READING = (RunKind.CONSTRAINTS, RunKind.CONSTRAINT, RunKind.QUERY, RunKind.ASK, RunKind.OUTLOOK)


def execute(run: Run) -> None:
    """Execute a run; if its state was redacted or can't be determined, store only that error."""
    about = {"run": str(run.pk), "kind": run.kind, "user": run.user_id}
    with structlog.contextvars.bound_contextvars(**about):
        try:
            earlier = run.checkpoint if run.checkpoint_id != run.user.head_id else None
            if earlier is not None and run.kind in READING:
                past_states.refuse_redacted(earlier)
            EXECUTORS[RunKind(run.kind)](run)
        except (checkpoints.Redacted, computed_states.NotComputable) as gone:
            kind = "redacted" if isinstance(gone, checkpoints.Redacted) else "not_computable"
            error = RunError(type=kind, message=str(gone))
            runs.finish(run, runs.Result(outcome=RunOutcome.USER_ERROR, error=error))
        logger.info("run_done", outcome=run.outcome)
