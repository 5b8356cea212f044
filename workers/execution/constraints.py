"""Constraint runs: find what holds in a version at an instant, and update the alerts."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from memory.alerting import reconcile
from memory.alerting.failures import PROJECT
from memory.alerting.findings import ConstraintFinding, failure
from memory.constraints import applicability
from memory.constraints.applicability import Applicability
from memory.models import Checkpoint, Run, WorkspaceConstraint
from memory.models.alerts import AlertKind, Severity
from memory.models.runs import RunOutcome
from memory.models.workspace_constraints import FOLDER
from memory.project import Outline
from memory.temporal import forecasts, history, states
from memory.users import run_again
from memory.work import hosts, leases, runs
from workers.execution import failing
from workers.execution.errors import error_json, outcome_of, user_error_json
from workers.execution.foreign import run_old_constraints
from workers.execution.projects import allowance_of, loaded
from workers.sandbox.interface import SandboxError
from workers.sandbox.results import ConstraintResult, FoundAlert
from workers.sandbox.runner import runner_name
from workers.service import hosting

# A broken sandbox is retried again and again; from this attempt on, the staff get an alert.
ATTEMPTS_BEFORE_ALERT = 3


def execute(run: Run) -> None:
    """Run every constraint of the run's checkpoint, and update the user's alerts.

    Workspace constraints that apply to the user run after the user's own.
    """
    assert run.checkpoint is not None
    started = time.monotonic()
    runner = runner_name()
    allowance = allowance_of(run.user.workspace)
    standings = applicability.applicabilities(run.user, Outline.from_json(run.checkpoint.outline))
    applying = [standing for standing in standings if standing.applies]
    try:
        with loaded(run.checkpoint, allowance, [one.constraint for one in applying]) as sandbox:
            ready = time.monotonic()
            ran = sandbox.run_constraints(
                now=run.instant,
                time_zone=run.user.time_zone,
                bindings={one.constraint.path: one.match.bindings for one in applying},
                limits=allowance.limits,
            )
            old = run_old_constraints(
                sandbox, run.checkpoint, now=run.instant, time_zone=run.user.time_zone
            )
    except SandboxError as error:
        if error.infrastructure:
            if run.attempts >= ATTEMPTS_BEFORE_ALERT:
                with transaction.atomic():
                    report_failure(run, error_json(error))
            raise
        _finish(
            run,
            [_project_failure(run, error, standings)],
            standings,
            completed=[],
            result=runs.Result(
                outcome=RunOutcome(error.outcome),
                error=error_json(error),
                stdout=error.usage.stdout,
                runner=runner,
                timings={"total": time.monotonic() - started},
            ),
        )
        return
    results = [*ran.results, *old]
    errors = [result.error for result in results if result.error is not None]
    _finish(
        run,
        _findings(run.checkpoint, results, [one.constraint for one in applying]),
        standings,
        over_limit={
            result.path: [finding_of(result.path, alert) for alert in result.alerts]
            for result in results
            if found_too_much(result)
        },
        completed=[*(result.path for result in results if _spoke(result)), PROJECT],
        result=runs.Result(
            outcome=RunOutcome(outcome_of(errors[0])) if errors else RunOutcome.OK,
            output={
                "constraints": [result_json(result) for result in results],
                "workspace": [_standing_json(standing) for standing in standings],
            },
            error=user_error_json(errors[0]) if errors else None,
            stdout=ran.usage.stdout,
            runner=runner,
            timings={
                "load": ready - started + ran.usage.load_seconds,
                "constraints": ran.usage.seconds - ran.usage.load_seconds,
                "total": time.monotonic() - started,
            },
            memory_bytes=ran.usage.memory_bytes,
        ),
        takes_now=any(result.takes_now for result in results),
    )


def try_one(run: Run) -> None:
    """Run one constraint's current text on the state and at the moment of the run.

    Its findings open, change and resolve nothing. Raises SandboxError if this host has no sandbox
    for it and another may have one.
    """
    started = time.monotonic()
    runner = runner_name()
    path, allowance = run.input["constraint"], allowance_of(run.user.workspace)
    state = history.state_of(run)
    applying: list[WorkspaceConstraint] = []
    bindings: dict[str, Any] = {}
    told: dict[str, Any] = {"constraint": path, "applies": True, "reasons": [], "alerts": []}
    problem: dict[str, Any] | None
    if path.startswith(FOLDER):
        found = applicability.live_at(run.user, path, Outline.from_json(state.outline))
        told |= {"applies": found.applies, "reasons": list(found.reasons)}
        if not found.applies:
            runs.finish(run, runs.Result(outcome=RunOutcome.OK, output=told))
            return
        applying, bindings = [found.constraint], {path: found.match.bindings}
    else:
        state = states.with_own(state, path, run.input["source_hash"])
    try:
        with loaded(state, allowance, applying) as sandbox:
            ran = sandbox.run_constraints(
                [path],
                now=run.instant,
                time_zone=run.user.time_zone,
                bindings=bindings,
                limits=allowance.limits,
            )
    except SandboxError as error:
        if error.infrastructure and hosts.others(hosting.name()):
            raise
        outcome, problem = RunOutcome(error.outcome), error_json(error)
        stdout = error.usage.stdout
    else:
        (result,) = ran.results
        stdout = ran.usage.stdout
        outcome, problem = RunOutcome.OK, None
        if result.error is not None:
            outcome, problem = RunOutcome(outcome_of(result.error)), user_error_json(result.error)
        told["alerts"] = [_found_json(finding_of(path, alert)) for alert in result.alerts]
    runs.finish(
        run,
        runs.Result(
            outcome=outcome,
            output=told,
            error=problem,
            stdout=stdout,
            runner=runner,
            timings={"total": time.monotonic() - started},
        ),
    )


def _found_json(finding: ConstraintFinding) -> dict[str, Any]:
    return {
        "fingerprint": finding.fingerprint,
        "severity": finding.severity,
        "message": finding.message,
        "key": finding.key,
        "evidence": list(finding.evidence),
        "entries": finding.entries,
    }


def report_failure(run: Run, error: Mapping[str, Any]) -> None:
    """Open an alert for the staff: the constraints cannot be run. It resolves nothing.

    Raises LeaseLost if another worker has the run now and may have run them. Call it in a
    transaction.
    """
    assert run.checkpoint is not None
    outline = Outline.from_json(run.checkpoint.outline)
    standings = applicability.applicabilities(run.user, outline)
    finding = failure(PROJECT, error)
    existing, ended = _existing(outline, standings), _ended(standings)
    reconcile.apply(run, [finding], completed=[], existing=existing, ended=ended)
    leases.check(run)


def _ended(standings: Sequence[Applicability]) -> dict[str, str]:
    return {one.constraint.path: one.ended for one in standings if not one.applies}


def _existing(outline: Outline, standings: Sequence[Applicability]) -> list[str]:
    own = [f"constraints/{name}.py" for name in outline.constraints]
    theirs = [standing.constraint.path for standing in standings if standing.applies]
    return [*own, *outline.legacy_constraints, *theirs, PROJECT]


def _finish(
    run: Run,
    findings: Sequence[ConstraintFinding],
    standings: Sequence[Applicability],
    *,
    completed: Sequence[str],
    result: runs.Result,
    over_limit: Mapping[str, Sequence[ConstraintFinding]] | None = None,
    takes_now: bool | None = None,
) -> None:
    assert run.checkpoint is not None
    existing = _existing(Outline.from_json(run.checkpoint.outline), standings)
    ended = _ended(standings)
    with transaction.atomic():
        applied = reconcile.apply(
            run,
            findings,
            completed=completed,
            existing=existing,
            ended=ended,
            over_limit=over_limit,
            sources={
                one.constraint.path: one.constraint.live.source_hash
                for one in standings
                if one.constraint.live is not None
            },
        )
        if applied and takes_now is not None:
            run_again(run.user, run.instant, soon=takes_now)
            forecasts.after_run(run.user, run.checkpoint, run.instant, standings)
        if not applied:
            result = runs.Result(
                outcome=RunOutcome.SUPERSEDED, runner=result.runner, timings=result.timings
            )
        runs.finish(run, result)


def _findings(
    checkpoint: Checkpoint,
    results: Sequence[ConstraintResult],
    applying: Sequence[WorkspaceConstraint],
) -> list[ConstraintFinding]:
    heard = [result for result in results if not found_too_much(result)]
    return [
        *failing.failures(checkpoint, heard, applying),
        *(finding_of(result.path, alert) for result in heard for alert in result.alerts),
    ]


def _project_failure(
    run: Run, error: SandboxError, standings: Sequence[Applicability]
) -> ConstraintFinding:
    """Return the staff's alert for a project that does not load: none of its constraints runs."""
    assert run.checkpoint is not None
    applying = [standing.constraint for standing in standings if standing.applies]
    paths = _existing(Outline.from_json(run.checkpoint.outline), standings)
    critical = failing.may_any_be_critical(run.checkpoint, applying, paths)
    return failure(PROJECT, error_json(error), critical=critical)


def found_too_much(result: ConstraintResult) -> bool:
    """Return whether a constraint was stopped because it exceeded its alert limit."""
    return result.error is not None and outcome_of(result.error) == RunOutcome.ALERT_LIMIT


def _spoke(result: ConstraintResult) -> bool:
    return result.error is None or found_too_much(result)


def finding_of(path: str, alert: FoundAlert) -> ConstraintFinding:
    """Return a constraint's alert as a finding of `alerts`."""
    return ConstraintFinding(
        constraint=path,
        kind=AlertKind.FINDING,
        severity=Severity(alert.severity),
        message=alert.message,
        key=alert.key,
        evidence=[item.to_json() for item in alert.evidence],
    )


def result_json(result: ConstraintResult) -> dict[str, Any]:
    """Return the part of a constraint's result that a run stores."""
    return {
        "path": result.path,
        "seconds": result.seconds,
        "error": user_error_json(result.error) if result.error else None,
        "alerts": [
            {**alert._asdict(), "evidence": [one._asdict() for one in alert.evidence]}
            for alert in result.alerts
        ],
        **({"left_out": result.left_out} if result.left_out else {}),
    }


def _standing_json(standing: Applicability) -> dict[str, Any]:
    constraint = standing.constraint
    return {
        "path": constraint.path,
        "version": constraint.live.number if constraint.live else None,
        "applies": standing.applies,
        "reasons": list(standing.reasons),
        "notes": list(standing.match.notes),
    }
