"""Constraint runs: what the constraints of a version find at an instant, and the alerts of it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from memory import alerts, runs
from memory.alerts import Finding
from memory.models import Run
from memory.models.alerts import AlertKind, Severity
from memory.models.runs import RunOutcome
from memory.project import Outline
from workers.errors import error_json, outcome_of, user_error_json
from workers.foreign import run_old_constraints
from workers.projects import allowance_of, loaded
from workers.sandbox.interface import ConstraintResult, FoundAlert, SandboxError
from workers.sandbox.runner import runner_name

# Stands for the project where it did not load, so that no constraint could run.
PROJECT = "project"
# A sandbox that breaks is tried again and again; from this try on the staff know of it.
ATTEMPTS_BEFORE_ALERT = 3


def execute(run: Run) -> None:
    """Run every constraint of the run's checkpoint, and bring the user's alerts in line."""
    assert run.checkpoint is not None
    started = time.monotonic()
    runner = runner_name()
    allowance = allowance_of(run.user)
    try:
        with loaded(run.checkpoint, allowance) as sandbox:
            ready = time.monotonic()
            ran = sandbox.run_constraints(
                now=run.instant, time_zone=run.user.time_zone, limits=allowance.limits
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
            [alerts.failure(PROJECT, error_json(error))],
            spoke=[],
            existing=_existing(run),
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
        _findings(results),
        spoke=[*(result.path for result in results if result.error is None), PROJECT],
        existing=_existing(run),
        result=runs.Result(
            outcome=RunOutcome(outcome_of(errors[0])) if errors else RunOutcome.OK,
            output={"constraints": [result_json(result) for result in results]},
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
    )


def report_failure(run: Run, error: Mapping[str, Any]) -> None:
    """Open an alert for the staff: the constraints cannot be run. Nothing is resolved by it."""
    failure = alerts.failure(PROJECT, error)
    alerts.apply(run, [failure], spoke=[], existing=_existing(run))


def _existing(run: Run) -> list[str]:
    assert run.checkpoint is not None
    outline = Outline.from_json(run.checkpoint.outline)
    ours = [f"constraints/{name}.py" for name in outline.constraints]
    return [*ours, *outline.legacy_constraints, PROJECT]


def _finish(
    run: Run,
    findings: Sequence[Finding],
    *,
    spoke: Sequence[str],
    existing: Sequence[str],
    result: runs.Result,
) -> None:
    with transaction.atomic():
        applied = alerts.apply(run, findings, spoke=spoke, existing=existing)
        if not applied:
            result = runs.Result(
                outcome=RunOutcome.SUPERSEDED, runner=result.runner, timings=result.timings
            )
        runs.finish(run, result)


def _findings(results: Sequence[ConstraintResult]) -> list[Finding]:
    findings = []
    for result in results:
        if result.error is not None:
            findings.append(alerts.failure(result.path, user_error_json(result.error)))
        findings += [_finding(result.path, alert) for alert in result.alerts]
    return findings


def _finding(path: str, alert: FoundAlert) -> Finding:
    return Finding(
        constraint=path,
        kind=AlertKind.FINDING,
        severity=Severity(alert.severity),
        message=alert.message,
        key=alert.key,
        evidence=[
            {
                "class": item.class_name,
                "domain": item.domain,
                "collection": item.collection,
                "key": item.key,
                "sources": list(item.sources),
            }
            for item in alert.evidence
        ],
    )


def result_json(result: ConstraintResult) -> dict[str, Any]:
    """Return what a run keeps of a constraint's result."""
    return {
        "path": result.path,
        "seconds": result.seconds,
        "error": user_error_json(result.error) if result.error else None,
        "alerts": [
            {**alert._asdict(), "evidence": [one._asdict() for one in alert.evidence]}
            for alert in result.alerts
        ],
    }
