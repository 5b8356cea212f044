"""Simulated alerts: a constraint's findings over time, combined into alerts.

The rules are the same as for real alerts (`memory.alerts.reconcile`).
"""

import datetime
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from memory.alerts.findings import ConstraintFinding, most_severe
from memory.alerts.models.alerts import Severity, severity_rank
from memory.kernel.settings.alert_settings import DAY, OPENINGS_OF_ONE, EffectiveSettings


@dataclass(frozen=True, kw_only=True)
class BacktestIssue:
    """A reason why a constraint would not have fired, at one point in time or for a while.

    The kinds are `error` (the constraint failed), `alert_limit` (it would have been paused),
    `redacted` (its input has since been redacted), `unknown` (its findings are unknown from that
    time on) and `failed` (the user could not be evaluated at all).
    """

    kind: str
    message: str

    def to_json(
        self, at: datetime.datetime | None = None, version: int | None = None
    ) -> dict[str, Any]:
        """Return the issue as JSON, with its time and version."""
        issue = {"kind": self.kind, "message": self.message[:1000]}
        return {"at": at.isoformat() if at else None, "version": version, **issue}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A constraint's findings on a version of a user's project, valid from `at` on."""

    at: datetime.datetime
    version: int
    findings: Sequence[ConstraintFinding] = ()
    problem: BacktestIssue | None = None


@dataclass
class SimulatedAlert:
    """An alert as the evaluation `opened` would have opened it."""

    finding: ConstraintFinding
    opened: Evaluation
    severity: Severity
    resolved_at: datetime.datetime | None = None

    def to_json(self, time_zone: str) -> dict[str, Any]:
        """Return the alert as JSON; `day` is when it would have opened in the user's time zone."""
        return {
            "fingerprint": self.finding.fingerprint,
            "severity": self.severity,
            "message": self.finding.message,
            "evidence": list(self.finding.evidence),
            "entries": self.finding.entries,
            "opened_at": self.opened.at.isoformat(),
            "day": self.opened.at.astimezone(ZoneInfo(time_zone)).date().isoformat(),
            "version": self.opened.version,
            "resolved_at": self.resolved_at.isoformat() if self.resolved_at else None,
        }


def simulate_alerts(
    evaluations: Iterable[Evaluation], limits: EffectiveSettings
) -> tuple[list[SimulatedAlert], list[dict[str, Any]]]:
    """Combine evaluations, in chronological order, into alerts by the same rules as real alerts.

    Returns the alerts and the constraint's problems. While the constraint has a problem, it opens
    no alerts, and its open alerts stay open. If it would have been paused, this counts as a problem
    only at that point in time, as if the constraint had been resumed right away.
    """
    alerts: list[SimulatedAlert] = []
    problems: list[dict[str, Any]] = []
    live: dict[str, SimulatedAlert] = {}
    recent: deque[tuple[datetime.datetime, str]] = deque()
    previous: BacktestIssue | None = None
    for evaluation in evaluations:
        while recent and recent[0][0] <= evaluation.at - DAY:
            recent.popleft()
        findings = most_severe(evaluation.findings)
        new = len(findings.keys() - live.keys())
        problem = evaluation.problem or _exceeded_limit(evaluation, new, len(recent), limits)
        if problem is not None and problem != previous:
            problems.append(problem.to_json(evaluation.at, evaluation.version))
        previous = problem
        if problem is not None:
            continue
        for fingerprint in live.keys() - findings.keys():
            live.pop(fingerprint).resolved_at = evaluation.at
        for fingerprint, finding in findings.items():
            if alert := live.get(fingerprint):
                alert.severity = max(alert.severity, finding.severity, key=severity_rank)
                continue
            live[fingerprint] = SimulatedAlert(finding, evaluation, finding.severity)
            alerts.append(live[fingerprint])
            recent.append((evaluation.at, fingerprint))
            times = sum(opened == fingerprint for _, opened in recent)
            if times == OPENINGS_OF_ONE:
                flaps = f"it opened the same alert {times} times within 24 hours"
                paused = BacktestIssue(kind="alert_limit", message=flaps)
                problems.append(paused.to_json(evaluation.at, evaluation.version))
    return alerts, problems


def _exceeded_limit(
    evaluation: Evaluation, new: int, recent: int, limits: EffectiveSettings
) -> BacktestIssue | None:
    most, within_day = limits.alerts_per_constraint, limits.openings_per_day
    if len(evaluation.findings) > most:
        reason = f"it raised more than {most} alerts at once"
    elif new and recent + new > within_day:
        reason = f"it would open more than {within_day} alerts within 24 hours"
    else:
        return None
    return BacktestIssue(kind="alert_limit", message=reason)
