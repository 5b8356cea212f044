"""Simulated alerts: the findings of a constraint over time, combined by the rules of alerts
(`memory.alerting.reconcile`)."""

import datetime
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.alerting.findings import ConstraintFinding, differences, most_severe
from memory.models.alerts import Severity, severity_rank
from memory.workspace_settings.alert_settings import DAY, OPENINGS_OF_ONE, EffectiveSettings


@dataclass(frozen=True, kw_only=True)
class BacktestIssue:
    """A cause, momentary or lasting, for which a constraint would not have alerted.

    Kinds: `error`, it failed; `alert_limit`, it would have been paused; `redacted`, its input was
    redacted since; `unknown`, it could not be followed any further.
    """

    kind: str
    message: str

    def to_json(self, at: datetime.datetime, version: int) -> dict[str, Any]:
        """Return the issue with its time and version, as JSON."""
        told = {"kind": self.kind, "message": self.message[:1000]}
        return {"at": at.isoformat(), "version": version, **told}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The findings of a constraint from an instant on, in one version of a user's project."""

    at: datetime.datetime
    version: int
    findings: Sequence[ConstraintFinding] = ()
    problem: BacktestIssue | None = None


@dataclass
class Episode:
    """A finding, from the moment at which it would have opened an alert."""

    opened: ConstraintFinding
    at: datetime.datetime
    version: int
    newest: ConstraintFinding
    severity: Severity
    changes: list[dict[str, Any]] = field(default_factory=list)
    resolved: Evaluation | None = None


@dataclass
class UserResult:
    """The simulated alerts of one user, and the problems of the constraint."""

    episodes: list[Episode] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)


def put_together(moments: Iterable[Evaluation], limits: EffectiveSettings) -> UserResult:
    """Combine evaluations, in chronological order, by the rules of alerts.

    While the constraint has a problem it yields nothing, and its alerts stay open. If it would have
    been paused, that is a problem at this moment only, as if it had been resumed immediately.
    """
    told = UserResult()
    live: dict[str, Episode] = {}
    lately: deque[tuple[datetime.datetime, str]] = deque()
    before: BacktestIssue | None = None
    for moment in moments:
        while lately and lately[0][0] <= moment.at - DAY:
            lately.popleft()
        found = most_severe(moment.findings)
        new = [one for one in found if one not in live]
        problem = moment.problem or _exceeded_limit(moment, len(new), len(lately), limits)
        if problem is not None:
            if problem != before:
                told.problems.append(problem.to_json(moment.at, moment.version))
            before = problem
            continue
        before = None
        for fingerprint in live.keys() - found.keys():
            live.pop(fingerprint).resolved = moment
        for fingerprint, finding in found.items():
            if fingerprint in live:
                _keep(live[fingerprint], finding, moment)
                continue
            live[fingerprint] = Episode(
                finding, moment.at, moment.version, finding, finding.severity
            )
            told.episodes.append(live[fingerprint])
            lately.append((moment.at, fingerprint))
            times = sum(one == fingerprint for _, one in lately)
            if times == OPENINGS_OF_ONE:
                flaps = f"it opened the same alert {times} times within 24 hours"
                paused = BacktestIssue(kind="alert_limit", message=flaps)
                told.problems.append(paused.to_json(moment.at, moment.version))
    return told


def _exceeded_limit(
    moment: Evaluation, new: int, lately: int, limits: EffectiveSettings
) -> BacktestIssue | None:
    most, within_day = limits.alerts_per_constraint, limits.openings_per_day
    if len(moment.findings) > most:
        reason = f"it raised more than {most} alerts at once"
    elif new and lately + new > within_day:
        reason = f"it would open more than {within_day} alerts within 24 hours"
    else:
        return None
    return BacktestIssue(kind="alert_limit", message=reason)


def _keep(episode: Episode, finding: ConstraintFinding, moment: Evaluation) -> None:
    changed = differences(episode.newest, finding)
    episode.newest = finding
    if changed:
        episode.changes.append(
            {
                "at": moment.at.isoformat(),
                "version": moment.version,
                "changed": changed,
                "severity": finding.severity,
            }
        )
    episode.severity = max(episode.severity, finding.severity, key=severity_rank)
