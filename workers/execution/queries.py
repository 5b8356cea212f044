"""Queries: Python code evaluated on a user's state; the code's value is the answer."""

import time

from memory.kernel.work import hosts
from memory.project.errors import RunError
from memory.versions import past_states, runs
from memory.versions.models.runs import Run, RunOutcome
from workers.execution.loading import LoadPlan, loaded
from workers.execution.results import failed
from workers.policy.checks import check_query
from workers.sandbox.results import Evaluation, SandboxError
from workers.sandbox.runner import runner_name


def execute(run: Run) -> None:
    """Evaluate the run's code on its checkpoint and store the result.

    Raises SandboxError if this host has no sandbox for the run and another host may have one.
    """
    if (refused := _refused(run.input["code"])) is not None:
        runs.finish(run, runs.Result(outcome=RunOutcome.USER_ERROR, error=refused))
        return
    started = time.monotonic()
    plan = LoadPlan(run.user, past_states.state_of(run), code=[run.input["code"]])
    try:
        try:
            ready, evaluation = _evaluate(run, plan)
        except SandboxError as error:
            if not (error.infrastructure or error.outcome == RunOutcome.KILLED):
                raise
            # The user's resident sandbox may have died with its Docker engine; a second attempt
            # gets a new sandbox.
            ready, evaluation = _evaluate(run, plan)
    except SandboxError as error:
        if error.infrastructure and hosts.others():
            raise  # the run is released: another host with sandboxes can execute it
        runs.finish(run, failed(error, started, memory_bytes=error.usage.memory_bytes))
        return
    runs.finish(
        run,
        runs.Result(
            outcome=RunOutcome.OK,
            output={
                "value": evaluation.value,
                "type": evaluation.type,
                "evidence": evaluation.evidence.to_json(),
                "ties": list(evaluation.ties),
            },
            stdout=evaluation.usage.stdout,
            runner=runner_name(),
            timings={
                "load": ready - started + evaluation.usage.load_seconds,
                "evaluate": evaluation.usage.seconds - evaluation.usage.load_seconds,
                "total": time.monotonic() - started,
            },
            memory_bytes=evaluation.usage.memory_bytes,
        ),
    )


def _refused(code: str) -> RunError | None:
    """Return the error if the code violates the policy; None if the code is allowed."""
    violations = check_query(code)
    if not violations:
        return None
    first = violations[0]
    return RunError(
        type="SyntaxError" if first.code == "syntax" else "PolicyError",
        message=first.message,
        path=first.path,
        line=first.line,
    )


def _evaluate(run: Run, plan: LoadPlan) -> tuple[float, Evaluation]:
    """Evaluate the run's code; return the start time (monotonic clock) and the result."""
    with loaded(plan) as sandbox:
        ready = time.monotonic()
        return ready, sandbox.evaluate(
            run.input["code"],
            now=run.instant,
            time_zone=run.user.time_zone,
            limits=plan.allowance.limits,
        )
