"""Alerts: what the runs of the constraints open, keep, change and resolve.

A constraint speaks by yielding a finding. The same finding (by fingerprint, not by wording) keeps
its alert open; when a run no longer makes it, the alert is resolved. A constraint that failed has
said nothing: its alerts stay as they are, and an alert for the staff says that it failed.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from memory import alert_events
from memory.canonical import canonical_json, sha256
from memory.models import Alert, AlertEvent, MemoryUser, Run
from memory.models.alerts import AlertEventKind, AlertKind, AlertState, Severity, severity_rank


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One alert as a constraint yielded it. `evidence` names records: domain, collection, key,
    class and sources (the seqs of the entries that the record rests on)."""

    constraint: str
    severity: Severity
    message: str
    key: str | None = None
    evidence: Sequence[Mapping[str, Any]] = ()
    kind: AlertKind = AlertKind.FINDING

    @property
    def fingerprint(self) -> str:
        """What makes two findings the same: constraint and key, never wording or severity."""
        identity: list[Any] = [self.constraint, self.kind]
        if self.key is not None:
            identity += ["key", self.key]
        else:
            records = {
                f"{item['domain']}.{item['collection']}:{item['key']}" for item in self.evidence
            }
            identity += ["evidence", sorted(records)]
        return sha256(canonical_json(identity))

    @property
    def entries(self) -> list[int]:
        """The log entries behind the evidence, ascending."""
        return sorted({seq for item in self.evidence for seq in item["sources"]})


def failure(constraint: str, error: Mapping[str, Any]) -> Finding:
    """Return the staff's alert for a constraint that failed."""
    where = f" at line {error['line']}" if error.get("line") else ""
    return Finding(
        constraint=constraint,
        kind=AlertKind.CONSTRAINT_ERROR,
        severity=Severity.WARNING,
        message=f"{constraint} failed{where}: {error['type']}: {error['message']}"[:2000],
        key="failed",
    )


def apply(
    run: Run, findings: Sequence[Finding], *, spoke: Collection[str], existing: Collection[str]
) -> bool:
    """Bring the user's alerts in line with what one run of the constraints found.

    `spoke` are the constraints that ran to their end, `existing` all of the version's. Alerts of
    a constraint that exists and did not end stay as they are. Returns False, and does nothing,
    when alerts of a newer version or instant are in place already. Runs in a transaction of the
    caller, together with `runs.finish`.
    """
    user = MemoryUser.objects.select_for_update(no_key=True).get(pk=run.user_id)
    version = run.checkpoint.version if run.checkpoint else 0
    if (version, run.instant) < (user.alerts_version, user.alerts_instant or run.instant):
        return False
    user.alerts_version, user.alerts_instant = version, run.instant
    user.save(update_fields=["alerts_version", "alerts_instant"])

    now = timezone.now()
    live = {
        alert.fingerprint: alert
        for alert in Alert.objects.select_for_update(no_key=True)
        .filter(user=user)
        .exclude(state=AlertState.RESOLVED)
    }
    found = _most_severe(findings)
    events: list[AlertEvent] = []
    for fingerprint, finding in found.items():
        if fingerprint in live:
            events += _keep(live[fingerprint], finding, run, now)
        else:
            events.append(_open(user, finding, run, now))
    for fingerprint, alert in live.items():
        if fingerprint not in found and (
            alert.constraint in spoke or alert.constraint not in existing
        ):
            reason = "no longer found" if alert.constraint in existing else "constraint deleted"
            events.append(_resolve(alert, actor="constraints", reason=reason, run=run, at=now))
    alert_events.record(user, events)
    return True


def _most_severe(findings: Sequence[Finding]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for finding in findings:
        earlier = found.get(finding.fingerprint)
        if earlier is None or severity_rank(finding.severity) > severity_rank(earlier.severity):
            found[finding.fingerprint] = finding
    return found


def _open(user: MemoryUser, finding: Finding, run: Run, now: datetime.datetime) -> AlertEvent:
    alert = Alert.objects.create(
        user=user,
        kind=finding.kind,
        constraint=finding.constraint,
        fingerprint=finding.fingerprint,
        severity=finding.severity,
        message=finding.message,
        evidence=list(finding.evidence),
        entries=finding.entries,
        opened_at=now,
        changed_at=now,
        last_run=run,
    )
    return _event(alert, AlertEventKind.OPENED, "constraints", run, now, severity=finding.severity)


def _keep(alert: Alert, finding: Finding, run: Run, now: datetime.datetime) -> Sequence[AlertEvent]:
    before = {name: getattr(alert, name) for name in ("severity", "message", "evidence", "entries")}
    after = {
        "severity": str(finding.severity),
        "message": finding.message,
        "evidence": list(finding.evidence),
        "entries": finding.entries,
    }
    alert.last_run = run
    if before == after:
        alert.save(update_fields=["last_run"])
        return ()
    changed = [name for name in after if before[name] != after[name]]
    for name in changed:
        setattr(alert, name, after[name])
    alert.changed_at = now
    if severity_rank(alert.severity) > severity_rank(before["severity"]):
        # What was acknowledged was less grave than this.
        alert.state = AlertState.OPEN
    alert.save()
    return [_event(alert, AlertEventKind.CHANGED, "constraints", run, now, changed=changed)]


class AlertNotOpen(Exception):
    """The alert is resolved: there is nothing left to acknowledge or resolve."""


def acknowledge(alert: Alert, *, actor: str, note: str = "") -> Alert:
    """Mark an open alert as seen; once more changes nothing. Raises AlertNotOpen if resolved."""
    with transaction.atomic():
        user, locked = _live(alert)
        if locked.state != AlertState.ACKNOWLEDGED:
            now = timezone.now()
            locked.state = AlertState.ACKNOWLEDGED
            locked.changed_at = now
            locked.save(update_fields=["state", "changed_at"])
            event = _event(locked, AlertEventKind.ACKNOWLEDGED, actor, None, now, note=note)
            alert_events.record(user, [event])
    return locked


def resolve(alert: Alert, *, actor: str, reason: str) -> Alert:
    """Close an alert by hand; the constraint opens a new one if it finds the same again.

    Raises AlertNotOpen if it is resolved already.
    """
    with transaction.atomic():
        user, locked = _live(alert)
        event = _resolve(locked, actor=actor, reason=reason, run=None, at=timezone.now())
        alert_events.record(user, [event])
    return locked


def _live(alert: Alert) -> tuple[MemoryUser, Alert]:
    # The user's row first, as in `apply`: two orders of locking would deadlock.
    user = MemoryUser.objects.select_for_update(no_key=True).get(pk=alert.user_id)
    locked = Alert.objects.select_for_update(no_key=True).get(pk=alert.pk)
    if locked.state == AlertState.RESOLVED:
        raise AlertNotOpen("this alert is resolved already")
    return user, locked


def _resolve(
    alert: Alert, *, actor: str, reason: str, run: Run | None, at: datetime.datetime
) -> AlertEvent:
    alert.state = AlertState.RESOLVED
    alert.changed_at = alert.resolved_at = at
    if run is not None:
        alert.last_run = run
    alert.save()
    return _event(alert, AlertEventKind.RESOLVED, actor, run, at, reason=reason)


def _event(
    alert: Alert,
    kind: AlertEventKind,
    actor: str,
    run: Run | None,
    at: datetime.datetime,
    **detail: Any,
) -> AlertEvent:
    """Return an event for `alert_events.record`."""
    return AlertEvent(alert=alert, kind=kind, actor=actor, run=run, at=at, detail=detail)
