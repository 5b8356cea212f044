"""Transitions: how one alert opens, changes, reopens and resolves, as part of a `Step`.

Every step locks the alert's user row first: if steps locked rows in different orders, they could
deadlock.
"""

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from memory.alerts import alert_events
from memory.alerts.findings import ConstraintFinding, differences, make_finding
from memory.alerts.models.alerts import (
    LIVE_STATES,
    Alert,
    AlertEvent,
    AlertEventKind,
    AlertState,
    severity_rank,
)
from memory.kernel.models.users import MemoryUser
from memory.kernel.settings.alert_settings import EffectiveSettings
from memory.versions.models.runs import Run

# The actors named in events that weren't caused by a person.
CONSTRAINTS = "constraints"
CLOCK = "clock"
REDACTION = "redaction"
MERGE = "merge"
MODEL = "language model"


@dataclass(frozen=True)
class Step:
    """A transaction in which a user's alerts change, with its user, actor, time and run.

    Events are collected as they occur and stored at the end, so that the feed's counter is locked
    last.
    """

    user: MemoryUser
    actor: str
    at: datetime.datetime = field(default_factory=timezone.now)
    run: Run | None = None
    events: list[AlertEvent] = field(default_factory=list)

    @property
    def limits(self) -> EffectiveSettings:
        """Return the workspace's effective alert settings."""
        return self.user.workspace.alert_limits

    def add_event(self, alert: Alert, kind: AlertEventKind, **detail: Any) -> None:
        """Add an event for an alert, unless the alert is a duplicate: duplicates have no events."""
        if alert.duplicate_of_id is not None:
            return
        self.events.append(
            AlertEvent(
                alert=alert, kind=kind, actor=self.actor, run=self.run, at=self.at, detail=detail
            )
        )

    def untell(self, alert: Alert) -> None:
        """Remove the events collected so far for an alert."""
        self.events[:] = [event for event in self.events if event.alert != alert]

    def record(self) -> None:
        """Store the events in the feed; call this last."""
        alert_events.record(self.user, self.events)


def lock_current(user: MemoryUser) -> dict[str, Alert]:
    """Lock the alerts that are live or hold back new alerts; return them, keyed by fingerprint."""
    alerts = Alert.objects.select_for_update(no_key=True).filter(user=user)
    current = alerts.filter(Q(state__in=LIVE_STATES) | Q(holds_back=True))
    return {alert.fingerprint: alert for alert in current}


def open_alert(finding: ConstraintFinding, step: Step) -> Alert:
    """Open an alert for a finding."""
    alert = Alert(
        user=step.user,
        kind=finding.kind,
        constraint=finding.constraint,
        fingerprint=finding.fingerprint,
        severity=finding.severity,
        message=finding.message,
        evidence=list(finding.evidence),
        entries=finding.entries,
        opened_at=step.at,
        changed_at=step.at,
        last_run=step.run,
    )
    mark_open(alert, step)
    alert.save(force_insert=True)
    step.add_event(alert, AlertEventKind.OPENED, severity=finding.severity)
    return alert


def keep_alert(alert: Alert, finding: ConstraintFinding, step: Step) -> None:
    """Update a live alert from its finding; reopen it if the finding is more severe."""
    changed = differences(make_finding(alert), finding)
    alert.last_run = step.run
    if alert.duplicate_of_id is not None:  # a duplicate's state is that of the listed alert
        alert.severity, alert.message = finding.severity, finding.message
        alert.evidence, alert.entries = list(finding.evidence), finding.entries
        alert.save()
        return
    if not changed:
        # A message with a countdown changes on every run. The new message is shown, but the change
        # is not recorded as an event.
        alert.message = finding.message
        alert.save(update_fields=["last_run", "message"])
        return
    if alert.message != finding.message and "message" not in changed:
        changed.append("message")
    wakes = alert.state == AlertState.SNOOZED and alert.snoozed_until is None
    was = {"severity": alert.severity, "message": alert.message}
    became = {"severity": finding.severity, "message": finding.message}
    graver = severity_rank(finding.severity) > severity_rank(alert.severity)
    alert.severity, alert.message = finding.severity, finding.message
    if "evidence" in changed:
        alert.evidence, alert.entries = list(finding.evidence), finding.entries
    alert.changed_at = step.at
    if alert.state == AlertState.OPEN:
        if "severity" in changed:
            _reschedule(alert, step.limits, step.at if graver else alert.open_since)
    elif graver or wakes:
        # Whoever acknowledged or snoozed the alert had seen a different or less severe finding.
        reason = "more severe" if graver else "changed"
        reopen_alert(alert, step, reason=reason, changed=changed)
        return
    alert.save()
    details = {"changed": changed, "graver": True} if graver else {"changed": changed}
    step.add_event(alert, AlertEventKind.CHANGED, **details, before=was, after=became)


def mark_open(alert: Alert, step: Step) -> None:
    """Set an alert's columns to those of an open alert, without saving the alert."""
    alert.state, alert.open_since, alert.changed_at = AlertState.OPEN, step.at, step.at
    alert.snoozed_until = alert.resolved_at = alert.escalated_at = None
    alert.holds_back = False
    alert.escalate_at = None
    _reschedule(alert, step.limits, step.at)


def _reschedule(alert: Alert, limits: EffectiveSettings, since: datetime.datetime) -> None:
    """Set when the alert will be escalated. While an alert stays open, it escalates only once."""
    if alert.duplicate_of_id is not None:
        alert.escalate_at = None
        return
    wait = limits.escalates_after(alert.severity)
    due = since + wait if wait is not None else None
    if due is not None and alert.escalate_at is not None and since != alert.open_since:
        due = min(due, alert.escalate_at)  # a higher severity never delays the escalation
    alert.escalate_at = due if alert.escalated_at is None else None


def release_hold(alert: Alert) -> None:
    """Stop a resolved alert from holding back new alerts."""
    alert.holds_back = False
    alert.save(update_fields=["holds_back"])


def record_held_events(user: MemoryUser, reasons: Mapping[str, str], run: Run) -> None:
    """Record in live alerts' histories that the language model's edits would have silenced them.

    `reasons` maps the alerts' fingerprints to the reasons. No event is added for an alert whose
    last event already records this. Call this in a transaction.
    """
    locked = MemoryUser.objects.locked(user.pk)
    step = Step(locked, MODEL, run=run)
    live = Alert.objects.live().filter(user=user, fingerprint__in=reasons)
    held = {}
    for alert in live.select_related("duplicate_of").order_by("pk"):
        held[alert.duplicate_of or alert] = reasons[alert.fingerprint]
    for alert, reason in held.items():
        last = AlertEvent.objects.filter(alert=alert).order_by("-seq").first()
        if last is None or "held" not in last.detail:
            step.add_event(alert, AlertEventKind.CHANGED, changed=[], held=reason)
    step.record()


@contextmanager
def step_on(alert: Alert, actor: str) -> Iterator[tuple[Step, Alert]]:
    """In a transaction, yield a step and the locked, refreshed alert; then store the events."""
    with transaction.atomic():
        user = MemoryUser.objects.locked(alert.user_id)
        step = Step(user, actor)
        yield step, Alert.objects.select_for_update(no_key=True).get(pk=alert.pk)
        step.record()


def put_aside(
    alert: Alert, state: AlertState, step: Step, *, until: datetime.datetime | None = None
) -> None:
    """Move an alert out of the open state, which also stops it from being escalated."""
    alert.state, alert.changed_at = state, step.at
    alert.snoozed_until, alert.escalate_at = until, None
    alert.save()


def reopen_alert(alert: Alert, step: Step, *, is_undo: bool = False, **detail: Any) -> None:
    """Reopen an alert; `detail` is stored with the event.

    An undo keeps since when the alert was open, and whether it had escalated. It escalates by the
    time at which it last became more severe.
    """
    open_since, escalated_at = alert.open_since, alert.escalated_at
    mark_open(alert, step)
    if is_undo:
        alert.open_since, alert.escalated_at = open_since, escalated_at
        alert.escalate_at = None
        graver = alert.events.filter(
            kind=AlertEventKind.CHANGED, detail__graver=True, at__gt=open_since
        )
        last = graver.order_by("-seq").first()
        _reschedule(alert, step.limits, last.at if last else open_since)
    alert.save()
    step.add_event(alert, AlertEventKind.REOPENED, **detail)


def resolve_alert(alert: Alert, step: Step, reason: str) -> None:
    """Resolve an alert for the given reason."""
    alert.resolved_at = step.at
    if step.run is not None:
        alert.last_run = step.run
    put_aside(alert, AlertState.RESOLVED, step)
    step.add_event(alert, AlertEventKind.RESOLVED, reason=reason)


@contextmanager
def free_step_on(alert: Alert) -> Iterator[tuple[Step, Alert | None]]:
    """Like `step_on`, but yield None as the alert if the user's row is locked.

    The next periodic check then tries again.
    """
    with transaction.atomic():
        users = MemoryUser.objects.select_for_update(no_key=True, skip_locked=True)
        user = users.filter(pk=alert.user_id).first()
        step = Step(user or alert.user, CLOCK)
        alerts = Alert.objects.select_for_update(no_key=True)
        yield step, alerts.get(pk=alert.pk) if user else None
        step.record()
