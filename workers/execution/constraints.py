"""Constraint runs: compute a version's findings as of a given time, and update the alerts."""

import time
from typing import Any

from django.db import transaction

from memory.alerts import reconcile
from memory.alerts.failing_constraints import PROJECT
from memory.alerts.findings import failure
from memory.constraints import applicability, forecasts
from memory.kernel.work import hosts, leases
from memory.project import Outline
from memory.project.errors import RunError
from memory.project.paths import FOLDER
from memory.versions import computed_states, past_states, runs
from memory.versions.models.runs import Run, RunOutcome
from workers.execution.loading import LoadPlan, loaded, plan_run
from workers.execution.results import (
    Found,
    applicability_json,
    failed,
    finding_json,
    findings_of,
    result_json,
)
from workers.sandbox.results import SandboxError

# A run whose sandbox fails is retried many times; from this attempt on, staff are alerted.
ATTEMPTS_BEFORE_ALERT = 3


def execute(run: Run) -> None:
    """Execute the run: run every constraint in its checkpoint, and update the user's alerts.

    Workspace constraints that apply to the user run after the user's own constraints.
    """
    assert run.checkpoint is not None
    started = time.monotonic()
    plan = plan_run(run.user, run.checkpoint)
    try:
        with loaded(plan) as sandbox:
            ready = time.monotonic()
            ran = plan.run_constraints(sandbox, run.instant)
    except SandboxError as error:
        if not error.infrastructure:
            finish_run(
                run, plan, Found.of_error(plan, error), failed(error, started), takes_now=None
            )
            return
        if run.attempts >= ATTEMPTS_BEFORE_ALERT:
            with transaction.atomic():
                report_failure(run, error.run_error)
        raise
    results = ran.results
    errors = [result.error for result in results if result.error is not None]
    outcome = Found.of_results(plan, results)
    result = runs.Result(
        outcome=RunOutcome(errors[0].outcome) if errors else RunOutcome.OK,
        output={
            "constraints": [result_json(result) for result in results],
            "workspace": [applicability_json(one) for one in plan.applicabilities or ()],
        },
        error=errors[0] if errors else None,
        stdout=ran.usage.stdout,
        runner=sandbox.runner_name,
        timings={
            "load": ready - started + ran.usage.load_seconds,
            "constraints": ran.usage.seconds - ran.usage.load_seconds,
            "total": time.monotonic() - started,
        },
        memory_bytes=ran.usage.memory_bytes,
    )
    finish_run(run, plan, outcome, result, takes_now=any(result.takes_now for result in results))


def finish_run(
    run: Run, plan: LoadPlan, outcome: Found, result: runs.Result, *, takes_now: bool | None
) -> None:
    """Bring the user's alerts in line with the findings, and store the run's result.

    `takes_now` says whether any of the constraints takes `now` rather than `today`, which affects
    when the clock or the forecast will run the constraints again. None means that no constraint
    ran, and leaves the times of the next runs unchanged. Everything happens in one transaction. If
    the alerts already reflect a newer run, the alerts are left alone, and this run is marked as
    superseded.
    """
    assert run.checkpoint is not None
    with transaction.atomic():
        applied = reconcile.apply(
            run,
            outcome.findings,
            completed=outcome.completed,
            existing=plan.existing,
            over_limit=outcome.over_limit,
            sources=plan.sources,
            ended=plan.ended,
            takes_now=takes_now,
        )
        if not applied:
            result = runs.Result(
                outcome=RunOutcome.SUPERSEDED, runner=result.runner, timings=result.timings
            )
        elif takes_now is not None:
            forecasts.schedule_after_run(
                run.user, run.checkpoint, run.instant, plan.applicabilities or ()
            )
        runs.finish(run, result)


def report_failure(run: Run, error: RunError) -> None:
    """Alert staff that the constraints can't be run; no alert is resolved.

    Must be called in a transaction. Raises LeaseLost if another worker has taken over the run: that
    worker may have run the constraints successfully.
    """
    assert run.checkpoint is not None
    plan = plan_run(run.user, run.checkpoint)
    reconcile.apply(
        run,
        [failure(PROJECT, error)],
        completed=[],
        existing=plan.existing,
        sources=plan.sources,
        ended=plan.ended,
    )
    leases.check(run)


def try_one(run: Run) -> None:
    """Evaluate a constraint's current source against the run's state, as of `run.instant`.

    The findings don't open, change or resolve any alerts. Raises SandboxError if this host has no
    sandbox for the run but another host might.
    """
    started = time.monotonic()
    path = run.input["constraint"]
    state = past_states.state_of(run)
    output: dict[str, Any] = {"constraint": path, "applies": True, "reasons": [], "alerts": []}
    if path.startswith(FOLDER):
        workspace_constraint = applicability.live_at(
            run.user, path, Outline.from_json(state.outline)
        )
        output |= {
            "applies": workspace_constraint.applies,
            "reasons": list(workspace_constraint.reasons),
        }
        if not workspace_constraint.applies:
            runs.finish(run, runs.Result(outcome=RunOutcome.OK, output=output))
            return
        plan = LoadPlan(run.user, state, applicabilities=[workspace_constraint])
    else:
        state = computed_states.replace_constraint(state, path, run.input["source_hash"])
        plan = LoadPlan(run.user, state, applicabilities=[])
    try:
        with loaded(plan) as sandbox:
            ran = plan.run_constraints(sandbox, run.instant, [path])
    except SandboxError as error:
        if error.infrastructure and hosts.others():
            raise
        runs.finish(run, failed(error, started, output=output))
        return
    (result,) = ran.results
    output["alerts"] = [finding_json(finding) for finding in findings_of(result)]
    runs.finish(
        run,
        runs.Result(
            outcome=RunOutcome(result.error.outcome) if result.error else RunOutcome.OK,
            output=output,
            error=result.error,
            stdout=ran.usage.stdout,
            runner=sandbox.runner_name,
            timings={"total": time.monotonic() - started},
        ),
    )
