"""Simulated alerts: a constraint's findings over time, combined into alerts.

The rules are the same as for real alerts (`memory.alerts.reconcile`).
"""

import datetime
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from memory.alerts.findings import ConstraintFinding, differences, most_severe
from memory.alerts.models.alerts import Severity, severity_rank
from memory.kernel.settings.alert_settings import DAY, OPENINGS_OF_ONE, EffectiveSettings


@dataclass(frozen=True, kw_only=True)
class BacktestIssue:
    """A reason why a constraint would not have fired, at one point in time or for a while.

    The kinds are `error` (the constraint failed), `alert_limit` (it would have been paused),
    `redacted` (its input has since been redacted) and `unknown` (its findings are unknown from that
    time on).
    """

    kind: str
    message: str

    def to_json(self, at: datetime.datetime, version: int) -> dict[str, Any]:
        """Return the issue as JSON, with its time and version."""
        told = {"kind": self.kind, "message": self.message[:1000]}
        return {"at": at.isoformat(), "version": version, **told}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A constraint's findings on a version of a user's project, valid from `at` on."""

    at: datetime.datetime
    version: int
    findings: Sequence[ConstraintFinding] = ()
    problem: BacktestIssue | None = None


@dataclass
class Episode:
    """A simulated alert, starting with the evaluation that would have opened it."""

    opened: ConstraintFinding
    at: datetime.datetime
    version: int
    newest: ConstraintFinding
    severity: Severity
    changes: list[dict[str, Any]] = field(default_factory=list)
    resolved: Evaluation | None = None

    def to_json(self, time_zone: str) -> dict[str, Any]:
        """Return the alert as JSON; `day` is when it would have opened in the user's time zone."""
        return {
            "fingerprint": self.opened.fingerprint,
            "severity": self.severity,
            "message": self.opened.message,
            "evidence": list(self.opened.evidence),
            "entries": self.opened.entries,
            "opened_at": self.at.isoformat(),
            "day": self.at.astimezone(ZoneInfo(time_zone)).date().isoformat(),
            "version": self.version,
            "changes": self.changes,
            "resolved_at": self.resolved.at.isoformat() if self.resolved else None,
            "resolved_version": self.resolved.version if self.resolved else None,
        }


@dataclass
class UserResult:
    """The simulated alerts for one user, and the constraint's problems."""

    episodes: list[Episode] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)


def put_together(moments: Iterable[Evaluation], limits: EffectiveSettings) -> UserResult:
    """Combine evaluations, in chronological order, into alerts by the same rules as real alerts.

    While the constraint has a problem, it opens no alerts, and its open alerts stay open. If it
    would have been paused, this counts as a problem only at that point in time, as if the
    constraint had been resumed right away.
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
