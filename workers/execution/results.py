"""What sandbox results become: findings, alerts to staff, and the form stored with each run."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.alerts.failing_constraints import PROJECT
from memory.alerts.findings import ConstraintFinding, failure
from memory.alerts.models.alerts import AlertKind, Severity
from memory.constraints import applicability
from memory.constraints.applicability import Applicability
from memory.constraints.constraint_sources import may_be_critical, optional_fields_at
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.project import Domain, Outline
from memory.project.errors import RunError
from memory.recall import retrieval
from memory.versions import checkpoints, runs
from memory.versions.checkpoints import AnyState
from memory.versions.models.runs import RunOutcome
from workers.execution.loading import LoadPlan
from workers.sandbox.results import ConstraintResult, FoundAlert, SandboxError
from workers.sandbox.runner import runner_name

# Errors that Python raises for an operation on None; the error messages contain "NoneType".
_ON_NONE = ("TypeError", "AttributeError")
_NONE = "NoneType"
# Maximum number of fields or records to name in the advice.
_NAMED = 3


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
        errors = {result.path: result.error for result in heard if result.error is not None}
        return cls(
            [
                *(failures(plan.checkpoint, errors, plan.applying) if errors else ()),
                *(finding for result in heard for finding in findings_of(result)),
            ],
            completed=[*ended, *(result.path for result in stopped), PROJECT],
            over_limit={result.path: findings_of(result) for result in stopped},
        )

    @classmethod
    def of_error(cls, plan: LoadPlan, error: SandboxError) -> "Found":
        """Return the alert that tells staff that a project doesn't load, so no constraint ran."""
        sources = sources_of(plan.checkpoint, plan.applying, plan.existing)
        critical = any(map(may_be_critical, sources.values()))
        return cls([failure(PROJECT, error.run_error, critical=critical)])


def found_too_much(result: ConstraintResult) -> bool:
    """Return whether a constraint was stopped because it exceeded its alert limit."""
    return result.error is not None and result.error.outcome == RunOutcome.ALERT_LIMIT


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
        "error": result.error.to_json() if result.error else None,
        "alerts": [
            {**alert._asdict(), "evidence": [one._asdict() for one in alert.evidence]}
            for alert in result.alerts
        ],
        **({"left_out": result.left_out} if result.left_out else {}),
    }


def applicability_json(applicability: Applicability) -> dict[str, Any]:
    """Return the part of a workspace constraint's applicability that is stored with a run."""
    constraint = applicability.constraint
    return {
        "path": constraint.path,
        "version": constraint.live.number if constraint.live else None,
        "applies": applicability.applies,
        "reasons": list(applicability.reasons),
        "notes": list(applicability.match.notes),
    }


def failed(
    error: SandboxError, started: float, *, output: Any = None, memory_bytes: int | None = None
) -> runs.Result:
    """Return the result of a run whose sandbox failed; `started` is from the monotonic clock."""
    return runs.Result(
        outcome=RunOutcome(error.outcome),
        output=output,
        error=error.run_error,
        stdout=error.usage.stdout,
        runner=runner_name(),
        timings={"total": time.monotonic() - started},
        memory_bytes=memory_bytes,
    )


def failures(
    checkpoint: AnyState,
    errors: Mapping[str, RunError],
    applying: Collection[WorkspaceConstraint],
) -> list[ConstraintFinding]:
    """Return alerts that notify staff of constraints (by path) that ended with an error.

    The alert is critical if the constraint may raise critical alerts, since people rely on those.
    """
    sources = sources_of(checkpoint, applying, errors.keys())
    outline = Outline.from_json(checkpoint.outline)
    return [
        failure(
            path,
            error,
            critical=may_be_critical(sources.get(path, "")),
            advice=_advice(
                checkpoint, outline, error, sources.get(path, "") if error.path == path else ""
            ),
        )
        for path, error in errors.items()
    ]


def sources_of(
    checkpoint: AnyState, applying: Collection[WorkspaceConstraint], paths: Collection[str]
) -> dict[str, str]:
    """Return the sources of these constraints, keyed by path.

    Users' own constraints are read from the version, workspace constraints from the workspace.
    """
    theirs = [one for one in applying if one.path in paths]
    live = applicability.read_live(theirs) if theirs else {}
    return {
        **checkpoints.read_files(checkpoint, paths),
        **{path: version.source for path, version in live.items()},
    }


def _advice(checkpoint: AnyState, outline: Outline, error: RunError, source: str) -> str:
    """Return what to fix if a constraint relied on a value that a record lacks."""
    if error.type not in _ON_NONE or _NONE not in error.message:
        return ""
    fields = optional_fields_at(source, error.line, outline)
    named = [
        f"{domain.name}.{collection} {key!r} has no {field.name}"
        for domain, class_, field in fields
        for collection, key in _records_without(checkpoint, domain, class_.name, field.name)
    ]
    where = "A field that the constraint reads is empty in at least one record"
    if named:
        where += f" ({'; '.join(named[:_NAMED])})"
    elif fields:
        names = [f"{domain.name}.{class_.name}.{field.name}" for domain, class_, field in fields]
        where += f" (possibly {' or '.join(names[:_NAMED])})"
    return f"{where}: test for None first."


def _records_without(
    checkpoint: AnyState, domain: Domain, class_name: str, field: str
) -> Iterator[tuple[str, str]]:
    """For each collection of the class, yield the first record that lacks the field.

    Each record is yielded as its collection and key. Only the newest file of each collection is
    searched.
    """
    for name in domain.collections_of(class_name):
        page = len(domain.collections[name].shards)
        for record in retrieval.records_in(checkpoint, domain, name, page).records:
            if record["fields"].get(field) is None:
                yield name, record["key"]
                break
