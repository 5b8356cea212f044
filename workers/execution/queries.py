"""Queries: Python over a user's state, answered with the value as computed."""

import time

from memory.models import Run
from memory.models.runs import RunOutcome
from memory.temporal import history
from memory.work import hosts, runs
from workers.checkpointing.policy import check_query
from workers.execution.errors import error_json
from workers.execution.projects import allowance_of, loaded
from workers.sandbox.interface import SandboxError
from workers.sandbox.limits import Allowance
from workers.sandbox.results import Evaluation
from workers.sandbox.runner import runner_name
from workers.service import hosting


def execute(run: Run) -> None:
    """Evaluate the run's code on its checkpoint and store the result.

    Raises SandboxError if this host has no sandbox for it and another may have one.
    """
    assert run.checkpoint is not None
    code = run.input["code"]
    if findings := check_query(code):
        first = findings[0]
        error = {
            "type": "SyntaxError" if first.code == "syntax" else "PolicyError",
            "message": first.message,
            "path": first.path,
            "line": first.line,
        }
        runs.finish(run, runs.Result(outcome=RunOutcome.USER_ERROR, error=error))
        return

    started = time.monotonic()
    runner = runner_name()
    allowance = allowance_of(run.user.workspace)
    try:
        try:
            ready, evaluation = _evaluate(run, allowance)
        except SandboxError as error:
            if not (error.infrastructure or error.outcome == RunOutcome.KILLED):
                raise
            # The user's resident sandbox may have died with its engine; a second attempt gets a new
            # one.
            ready, evaluation = _evaluate(run, allowance)
    except SandboxError as error:
        if error.infrastructure and hosts.others(hosting.name()):
            raise  # the run is released: a host with sandboxes can answer it
        runs.finish(
            run,
            runs.Result(
                outcome=RunOutcome(error.outcome),
                error=error_json(error),
                stdout=error.usage.stdout,
                runner=runner,
                timings={"total": time.monotonic() - started},
                memory_bytes=error.usage.memory_bytes,
            ),
        )
        return
    runs.finish(
        run,
        runs.Result(
            outcome=RunOutcome.OK,
            output={
                "value": evaluation.value,
                "type": evaluation.type,
                "evidence": evaluation.evidence.to_json(),
            },
            stdout=evaluation.usage.stdout,
            runner=runner,
            timings={
                "load": ready - started + evaluation.usage.load_seconds,
                "evaluate": evaluation.usage.seconds - evaluation.usage.load_seconds,
                "total": time.monotonic() - started,
            },
            memory_bytes=evaluation.usage.memory_bytes,
        ),
    )


def _evaluate(run: Run, allowance: Allowance) -> tuple[float, Evaluation]:
    """Evaluate the run's code; return when the project was loaded (monotonic), and the result."""
    with loaded(history.state_of(run), allowance) as sandbox:
        ready = time.monotonic()
        return ready, sandbox.evaluate(
            run.input["code"],
            now=run.instant,
            time_zone=run.user.time_zone,
            limits=allowance.limits,
        )
