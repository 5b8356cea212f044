"""The life cycle of an open alert.

People acknowledge, snooze, reopen and resolve alerts; over time, snoozes end and alerts escalate.
"""

import datetime

from django.utils import timezone

from memory.alerts.duplicates import lock_duplicates
from memory.alerts.models.alerts import (
    Alert,
    AlertEventKind,
    AlertKind,
    AlertState,
    PausedConstraint,
)
from memory.alerts.paused_constraints import end_pause, run_again
from memory.alerts.transitions import free_step_on, put_aside, reopen_alert, resolve_alert, step_on

_STATE_EVENTS = (
    AlertEventKind.OPENED,
    AlertEventKind.ACKNOWLEDGED,
    AlertEventKind.SNOOZED,
    AlertEventKind.REOPENED,
    AlertEventKind.RESOLVED,
)
MAX_SNOOZE = datetime.timedelta(days=366)


class AlertNotOpen(Exception):
    """The alert's state does not allow this action, because there is nothing left to do."""


class SnoozeRefused(ValueError):
    """The alert can't be snoozed until the requested time."""


def acknowledge(alert: Alert, *, actor: str, note: str = "", is_undo: bool = False) -> Alert:
    """Mark a live alert as seen. This is idempotent.

    Raises AlertNotOpen if the alert is resolved, or if the actor would undo what somebody else has
    done.
    """
    with step_on(alert, actor) as (step, row):
        if is_undo:
            _check_own(row, actor)
        _check_live(row)
        if row.state != AlertState.ACKNOWLEDGED:
            put_aside(row, AlertState.ACKNOWLEDGED, step)
            step.add_event(row, AlertEventKind.ACKNOWLEDGED, note=note)
    return row


def snooze(alert: Alert, *, actor: str, until: datetime.datetime | None, note: str = "") -> Alert:
    """Snooze a live alert until the given time or, if `until` is None, until its finding changes.

    A finding changes if its severity or records differ. A higher severity ends any snooze. Raises
    SnoozeRefused if the time has passed or is more than a year away, and AlertNotOpen if the alert
    is resolved.
    """
    now = timezone.now()
    if until is not None and until <= now:
        raise SnoozeRefused("This time has already passed. Choose a time in the future.")
    if until is not None and until > now + MAX_SNOOZE:
        raise SnoozeRefused(
            f"Choose a time within {MAX_SNOOZE.days} days. If no time is given, the alert is"
            " snoozed until it changes."
        )
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        put_aside(row, AlertState.SNOOZED, step, until=until)
        until_text = until.isoformat() if until else "it changes"
        step.add_event(row, AlertEventKind.SNOOZED, until=until_text, note=note)
    return row


def reopen(alert: Alert, *, actor: str, note: str = "", is_undo: bool = False) -> Alert:
    """Reopen an acknowledged, snoozed or manually resolved alert.

    A resolved alert can be reopened as long as its finding persists. The time until it escalates
    begins anew, except in an undo: the alert then stays open since before, and stays escalated.
    Raises AlertNotOpen if the alert is already open, if its finding no longer exists, or if the
    actor would undo what somebody else has done.
    """
    with step_on(alert, actor) as (step, row):
        if is_undo:
            _check_own(row, actor)
        if row.state == AlertState.OPEN:
            raise AlertNotOpen("this alert is already open")
        if row.state == AlertState.RESOLVED and not row.holds_back:
            raise AlertNotOpen("this alert is resolved, and its finding no longer exists")
        for one in lock_duplicates(row):
            reason = "undone" if is_undo else "manually"
            reopen_alert(one, step, is_undo=is_undo, reason=reason, note=note)
    return row


def resolve(alert: Alert, *, actor: str, reason: str) -> Alert:
    """Resolve an alert manually. As long as its finding doesn't change, no new alert opens for it.

    Resolving the alert about a paused constraint resumes the constraint. Raises AlertNotOpen if the
    alert is already resolved.
    """
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        if row.kind == AlertKind.CONSTRAINT_PAUSED:
            paused = PausedConstraint.objects.filter(
                user=step.user, constraint=row.constraint, resumed_at=None
            )
            for one in paused:
                end_pause(one, step, reason)
                run_again(step.user)
        for resolved in lock_duplicates(row):
            resolved.holds_back = resolved.kind != AlertKind.CONSTRAINT_PAUSED
            resolve_alert(resolved, step, reason)
    return row


def assign(alert: Alert, *, actor: str, to: str) -> Alert:
    """Record which staff member takes care of an alert; "" means that nobody does."""
    with step_on(alert, actor) as (step, row):
        _check_live(row)
        if row.assigned_to != to:
            row.assigned_to = to
            row.save(update_fields=["assigned_to"])
            step.add_event(row, AlertEventKind.ASSIGNED, to=to or "nobody")
    return row


def add_note(alert: Alert, *, actor: str, note: str) -> Alert:
    """Add a note to the history of an alert, which stays as it is."""
    with step_on(alert, actor) as (step, row):
        step.add_event(row, AlertEventKind.NOTED, note=note)
    return row


def _check_own(alert: Alert, actor: str) -> None:
    """Raise AlertNotOpen unless the actor has put the alert into its present state."""
    last = alert.events.filter(kind__in=_STATE_EVENTS).order_by("-seq").first()
    if last is None or last.actor != actor:
        raise AlertNotOpen("somebody else has acted on this alert since")


def _check_live(alert: Alert) -> None:
    if alert.state == AlertState.RESOLVED:
        raise AlertNotOpen("this alert is already resolved")


def wake(limit: int) -> int:
    """Reopen up to `limit` alerts whose snooze has ended; return how many were reopened."""
    due = Alert.objects.filter(snoozed_until__lte=timezone.now()).order_by("snoozed_until")
    return sum(map(_wake, due[:limit]))


def escalate(limit: int) -> int:
    """Escalate up to `limit` alerts that have been open too long for their severity.

    Returns how many were escalated.
    """
    due = Alert.objects.filter(escalate_at__lte=timezone.now()).order_by("escalate_at")
    return sum(map(_escalate, due[:limit]))


def _wake(alert: Alert) -> bool:
    with free_step_on(alert) as (step, row):
        if row is None or row.snoozed_until is None or row.snoozed_until > step.at:
            return False
        reopen_alert(row, step, reason=f"snoozed until {row.snoozed_until:%Y-%m-%d %H:%M} UTC")
        return True


def _escalate(alert: Alert) -> bool:
    with free_step_on(alert) as (step, row):
        if row is None or row.escalate_at is None or row.escalate_at > step.at:
            return False
        row.escalate_at, row.escalated_at = None, step.at
        row.save(update_fields=["escalate_at", "escalated_at"])
        minutes = int((step.at - row.open_since).total_seconds() // 60)
        step.add_event(row, AlertEventKind.ESCALATED, reason=f"open for {minutes} minutes")
        return True
