"""Handover of a merged user's alerts to the remaining user."""

import datetime
from collections.abc import Sequence
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.models import F, Func, JSONField, TextField, Value

from memory.alerts.models.alerts import Alert, AlertEventKind, AlertKind, AlertState
from memory.alerts.transitions import (
    MERGE,
    Step,
    lock_current,
    put_aside,
    release_hold,
    resolve_alert,
)
from memory.kernel.models.users import MemoryUser
from memory.log.models.merges import Merge


def hand_over(user: MemoryUser, into: MemoryUser) -> dict[str, Any]:
    """Resolve the alerts of a user being merged into another; return their states by fingerprint.

    When one of `into`'s constraints yields a finding with the same fingerprint, the finding's alert
    gets the stored state. Call this in a transaction that has locked both users' rows.
    """
    step = Step(user, MERGE)
    current = lock_current(user)
    states = {alert.pk: _state_of(alert) for alert in current.values()}
    handed = {}
    for fingerprint, alert in current.items():
        if alert.kind == AlertKind.FINDING:
            own = states[alert.pk]
            handed[fingerprint] = states.get(alert.duplicate_of_id or alert.pk, own)
        if alert.state == AlertState.RESOLVED:
            release_hold(alert)
        else:
            resolve_alert(alert, step, f"merged into {into}")
    step.record()
    return handed


def _state_of(alert: Alert) -> dict[str, Any]:
    until = alert.snoozed_until
    return {
        "alert": str(alert.pk),
        "state": alert.state,
        "until": until.isoformat() if until else None,
    }


def take_over(alert: Alert, step: Step) -> None:
    """Give a newly opened alert the state of the merged user's alert with the same fingerprint."""
    row = Merge.objects.filter(user=step.user, alerts__has_key=alert.fingerprint).first()
    if row is None:
        return
    was = row.alerts[alert.fingerprint]
    forget_handed(row, [alert.fingerprint])
    note = f"taken over from alert {was['alert']} of {row.merged}"
    until = datetime.datetime.fromisoformat(was["until"]) if was["until"] else None
    match was["state"]:
        case AlertState.ACKNOWLEDGED:
            put_aside(alert, AlertState.ACKNOWLEDGED, step)
            step.add_event(alert, AlertEventKind.ACKNOWLEDGED, note=note)
        case AlertState.SNOOZED if until is None or until > step.at:
            put_aside(alert, AlertState.SNOOZED, step, until=until)
            until_text = until.isoformat() if until else "it changes"
            step.add_event(alert, AlertEventKind.SNOOZED, until=until_text, note=note)
        case AlertState.RESOLVED:
            alert.holds_back = True
            resolve_alert(alert, step, f"resolved manually; {note}")


def forget_handed(row: Merge, fingerprints: Sequence[str]) -> None:
    """Remove fingerprints from a merge in one statement, which is safe from concurrent writes."""
    left = Func(
        F("alerts"),
        Value(list(fingerprints), output_field=ArrayField(TextField())),
        template="(%(expressions)s)",
        arg_joiner=" - ",
        output_field=JSONField(),
    )
    Merge.objects.filter(pk=row.pk).update(alerts=left)
