"""Paused constraints: pausing noisy constraints, resuming them, and notifying staff."""

from collections.abc import Collection, Mapping, Sequence

from django.db import transaction

from memory.alerts import alert_limits
from memory.alerts.alert_limits import ExceededLimit
from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import Alert, AlertKind, PausedConstraint, Severity
from memory.alerts.transitions import Step, keep_alert, lock_current, open_alert, resolve_alert
from memory.kernel.models.users import MemoryUser
from memory.versions import runs
from memory.versions.models.runs import RunKind, RunTrigger


class NotPaused(Exception):
    """The constraint is not paused, because it has already been resumed."""


def resume(paused: PausedConstraint, *, actor: str, reason: str) -> PausedConstraint:
    """Resume a paused constraint and run it. Raises NotPaused if it has already been resumed."""
    with transaction.atomic():
        user = MemoryUser.objects.select_for_update(no_key=True).get(pk=paused.user_id)
        row = PausedConstraint.objects.select_for_update(no_key=True).get(pk=paused.pk)
        if row.resumed_at is not None:
            raise NotPaused(f"{row.constraint} is no longer paused")
        step = Step(user, actor)
        end_pause(row, step, reason)
        run_again(user)
        about = lock_current(user).get(
            pause_finding(row.constraint, Severity.WARNING, "").fingerprint
        )
        if about is not None:
            resolve_alert(about, step, f"resumed: {reason}")
        step.record()
    return row


def run_again(user: MemoryUser) -> None:
    """Queue a constraint run after one of the user's constraints was resumed."""
    if user.head is not None and user.merged_into_id is None:
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.RESUMED, checkpoint=user.head)


def end_pause(row: PausedConstraint, step: Step, reason: str) -> None:
    """Record who resumed a constraint, and why."""
    row.resumed_at, row.resumed_by, row.resumed_because = step.at, step.actor, reason
    row.save(update_fields=["resumed_at", "resumed_by", "resumed_because"])


def resume_changed(
    known: dict[str, Alert],
    existing: Collection[str],
    hashes: Mapping[str, str],
    step: Step,
) -> set[str]:
    """Resume paused constraints that changed or no longer exist; return the ones still paused."""
    paused = set()
    for row in PausedConstraint.objects.filter(user=step.user, resumed_at=None):
        if row.constraint not in existing:
            reason = "constraint deleted"
        elif hashes.get(row.constraint, "") != row.source_hash:
            reason = "constraint changed"
        else:
            paused.add(row.constraint)
            continue
        end_pause(row, step, reason)
        about = known.pop(pause_finding(row.constraint, Severity.WARNING, "").fingerprint, None)
        if about is not None:
            resolve_alert(about, step, reason)
    return paused


def pause(
    excess: ExceededLimit,
    source_hash: str,
    live: Sequence[Alert],
    step: Step,
) -> None:
    """Pause a constraint that exceeded an alert limit, and open an alert about it for staff."""
    PausedConstraint.objects.create(
        user=step.user,
        constraint=excess.constraint,
        source_hash=source_hash,
        reason=excess.reason,
        paused_at=step.at,
        paused_by=step.actor,
    )
    grave = Severity.CRITICAL in (
        *(alert.severity for alert in live if alert.constraint == excess.constraint),
        *(finding.severity for finding in excess.findings),
    )
    severity = Severity.CRITICAL if grave else Severity.WARNING
    open_alert(pause_finding(excess.constraint, severity, excess.message), step)


def tell_more_severe(
    paused: Collection[str],
    found: Sequence[ConstraintFinding],
    known: Mapping[str, Alert],
    step: Step,
) -> None:
    """Notify staff when a paused constraint reports a critical finding for the first time.

    The finding itself opens no alert, and whoever acknowledged the pause did not know about the
    finding.
    """
    for finding in found:
        if finding.constraint not in paused or finding.severity != Severity.CRITICAL:
            continue
        about = known.get(pause_finding(finding.constraint, Severity.CRITICAL, "").fingerprint)
        if about is not None and about.severity != Severity.CRITICAL:
            message = f"{about.message} Since then, it has reported {alert_limits.quoted(finding)}"
            keep_alert(about, pause_finding(finding.constraint, Severity.CRITICAL, message), step)


def pause_finding(constraint: str, severity: Severity, message: str) -> ConstraintFinding:
    """Return the finding that alerts staff to a paused constraint."""
    return ConstraintFinding(
        constraint=constraint,
        kind=AlertKind.CONSTRAINT_PAUSED,
        severity=severity,
        message=message,
        key="paused",
    )
