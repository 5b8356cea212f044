"""Convert sandbox results to findings, and to the form stored with each run."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.alerts.failures import PROJECT
from memory.alerts.findings import ConstraintFinding, failure
from memory.alerts.models.alerts import AlertKind, Severity
from memory.constraints.applicability import Applicability
from memory.constraints.constraint_sources import may_be_critical
from memory.versions import runs
from memory.versions.models.runs import RunOutcome
from workers.execution import failing
from workers.execution.errors import error_json, outcome_of, user_error_json
from workers.execution.loading import LoadPlan
from workers.sandbox.interface import SandboxError
from workers.sandbox.results import ConstraintResult, FoundAlert
from workers.sandbox.runner import runner_name


@dataclass(frozen=True)
class Found:
    """The findings of all constraints in one run.

    `completed` are the constraints that ran to completion; `over_limit` contains a few findings
    from each constraint that was stopped at the alert limit.
    """

    findings: Sequence[ConstraintFinding]
    completed: Sequence[str] = ()
    over_limit: Mapping[str, Sequence[ConstraintFinding]] = field(default_factory=dict)

    @classmethod
    def of_results(cls, plan: LoadPlan, results: Sequence[ConstraintResult]) -> "Found":
        """Return the constraints' findings, and alerts that tell staff which constraints failed."""
        stopped = [result for result in results if found_too_much(result)]
        heard = [result for result in results if not found_too_much(result)]
        ended = [result.path for result in results if result.error is None]
        return cls(
            [
                *failing.failures(plan.checkpoint, heard, plan.applying),
                *(finding for result in heard for finding in findings_of(result)),
            ],
            completed=[*ended, *(result.path for result in stopped), PROJECT],
            over_limit={result.path: findings_of(result) for result in stopped},
        )

    @classmethod
    def of_error(cls, plan: LoadPlan, error: SandboxError) -> "Found":
        """Return the alert that tells staff that a project doesn't load, so no constraint ran."""
        sources = failing.sources_of(plan.checkpoint, plan.applying, plan.existing)
        critical = any(map(may_be_critical, sources.values()))
        return cls([failure(PROJECT, error_json(error), critical=critical)])


def found_too_much(result: ConstraintResult) -> bool:
    """Return whether a constraint was stopped because it exceeded its alert limit."""
    return result.error is not None and outcome_of(result.error) == RunOutcome.ALERT_LIMIT


def findings_of(result: ConstraintResult) -> list[ConstraintFinding]:
    """Convert a constraint's alerts to findings."""
    return [finding_of(result.path, alert) for alert in result.alerts]


def finding_of(path: str, alert: FoundAlert) -> ConstraintFinding:
    """Convert a constraint's alert to a finding."""
    return ConstraintFinding(
        constraint=path,
        kind=AlertKind.FINDING,
        severity=Severity(alert.severity),
        message=alert.message,
        key=alert.key,
        evidence=[item.to_json() for item in alert.evidence],
    )


def finding_json(finding: ConstraintFinding) -> dict[str, Any]:
    """Return a finding in the form stored with a constraint trial."""
    return {
        "fingerprint": finding.fingerprint,
        "severity": finding.severity,
        "message": finding.message,
        "key": finding.key,
        "evidence": list(finding.evidence),
        "entries": finding.entries,
    }


def result_json(result: ConstraintResult) -> dict[str, Any]:
    """Return the part of a constraint's result that is stored with a run."""
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


def standing_json(standing: Applicability) -> dict[str, Any]:
    """Return the part of a workspace constraint's applicability that is stored with a run."""
    constraint = standing.constraint
    return {
        "path": constraint.path,
        "version": constraint.live.number if constraint.live else None,
        "applies": standing.applies,
        "reasons": list(standing.reasons),
        "notes": list(standing.match.notes),
    }


def failed(
    error: SandboxError, started: float, *, output: Any = None, memory_bytes: int | None = None
) -> runs.Result:
    """Return the result of a run whose sandbox failed; `started` is from the monotonic clock."""
    return runs.Result(
        outcome=RunOutcome(error.outcome),
        output=output,
        error=error_json(error),
        stdout=error.usage.stdout,
        runner=runner_name(),
        timings={"total": time.monotonic() - started},
        memory_bytes=memory_bytes,
    )
