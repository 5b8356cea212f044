"""Paused constraints: finding constraints that are too noisy, pausing them, and resuming them.

Nobody reads one alert among hundreds, and nobody trusts an alert that comes and goes all day. A
constraint that is too noisy is therefore paused: it opens no new alerts, and its open alerts stay
open.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import (
    Alert,
    AlertKind,
    PausedConstraint,
    Severity,
    severity_rank,
)
from memory.alerts.transitions import Step, keep_alert, lock_current, open_alert, resolve_alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.settings.alert_settings import DAY, OPENINGS_OF_ONE
from memory.versions import runs
from memory.versions.models.runs import RunKind, RunTrigger

QUOTED = 3
QUOTED_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class ExceededLimit:
    """A constraint that exceeded an alert limit, with its findings from this run.

    If `may_open` is set, the constraint is only flapping, so its new findings still open alerts.
    """

    constraint: str
    reason: str
    findings: Sequence[ConstraintFinding]
    may_open: bool = False

    @property
    def message(self) -> str:
        """The notice to staff: the reason for the pause, its consequence, and the remedy."""
        gravest = sorted(self.findings, key=lambda one: -severity_rank(one.severity))[:QUOTED]
        quotes = "; ".join(map(quoted, gravest))
        became = "" if self.may_open else " It opened no new alerts."
        return (
            f"{self.constraint} is paused for this user: {self.reason}.{became} The alerts that it"
            " opened stay as they are until its source changes, or it is resumed by resolving this"
            f" alert. It reported: {quotes}"
        )


def find_exceeded(
    findings: Sequence[ConstraintFinding],
    new: Sequence[ConstraintFinding],
    over_limit: Mapping[str, Sequence[ConstraintFinding]],
    paused: Collection[str],
    step: Step,
) -> list[ExceededLimit]:
    """Return the constraints that exceed an alert limit and must be paused.

    `new` contains the findings that would open alerts. `over_limit` maps each constraint that was
    stopped at the alert limit to a few of its findings. `paused` are already paused.
    """
    limits = step.limits
    by_constraint: dict[str, list[ConstraintFinding]] = defaultdict(list)
    for finding in findings:
        if finding.kind == AlertKind.FINDING:
            by_constraint[finding.constraint].append(finding)
    opening = Counter(one.constraint for one in new if one.kind == AlertKind.FINDING)
    opened = _opened(step, opening)
    exceeded = []
    for constraint in sorted({*by_constraint, *over_limit} - set(paused)):
        reported = over_limit.get(constraint) or by_constraint[constraint]
        before = opened[constraint]
        flapping = [
            one
            for one in new
            if one.constraint == constraint and before[one.fingerprint] + 1 >= OPENINGS_OF_ONE
        ]
        may_open = False
        if constraint in over_limit or len(reported) > limits.alerts_per_constraint:
            limit = limits.alerts_per_constraint
            reason = (
                f"it raised more than {limit} alerts at once"
                if constraint in over_limit
                else f"it raised {len(reported)} alerts at once, more than {limit}"
            )
        elif before.total() + opening[constraint] > limits.openings_per_day:
            reason = f"it would open more than {limits.openings_per_day} alerts within 24 hours"
        elif flapping:
            reason = f"it opened the same alert {OPENINGS_OF_ONE} times within 24 hours"
            reported, may_open = flapping, True
        else:
            continue
        exceeded.append(
            ExceededLimit(
                constraint=constraint, reason=reason, findings=reported, may_open=may_open
            )
        )
    return exceeded


def _opened(step: Step, constraints: Collection[str]) -> Mapping[str, Counter[str]]:
    """Return how often each constraint opened each alert, keyed by constraint, then fingerprint.

    Only alerts opened in the last 24 hours are counted or, if the constraint was resumed during
    that time, only alerts opened since then.
    """
    opened: dict[str, Counter[str]] = defaultdict(Counter)
    if not constraints:
        return opened
    since = step.at - DAY
    pauses = PausedConstraint.objects.filter(user=step.user, resumed_at__gt=since)
    resumed = {one.constraint: one.resumed_at or step.at for one in pauses.order_by("resumed_at")}
    rows = Alert.objects.filter(
        user=step.user,
        kind=AlertKind.FINDING,
        constraint__in=list(constraints),
        opened_at__gt=since,
    ).values_list("constraint", "fingerprint", "opened_at")
    for constraint, fingerprint, at in rows:
        if at > resumed.get(constraint, since):
            opened[constraint][fingerprint] += 1
    return opened


def quoted(finding: ConstraintFinding) -> str:
    """Return a finding as text for staff: its severity and the beginning of its message."""
    text = finding.message
    if len(text) > QUOTED_CHARACTERS:
        text = text[: QUOTED_CHARACTERS - 1] + "…"
    return f"{finding.severity}: {text}"


class NotPaused(Exception):
    """The constraint is not paused, because it has already been resumed."""


def resume(paused: PausedConstraint, *, actor: str, reason: str) -> PausedConstraint:
    """Resume a paused constraint and run it. Raises NotPaused if it has already been resumed."""
    with transaction.atomic():
        user = MemoryUser.objects.locked(paused.user_id)
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
    current: dict[str, Alert],
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
        about = current.pop(pause_finding(row.constraint, Severity.WARNING, "").fingerprint, None)
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


def record_severity_rise(
    paused: Collection[str],
    findings: Sequence[ConstraintFinding],
    current: Mapping[str, Alert],
    step: Step,
) -> None:
    """Notify staff when a paused constraint reports a critical finding for the first time.

    The finding itself opens no alert, and whoever acknowledged the pause did not know about the
    finding.
    """
    for finding in findings:
        if finding.constraint not in paused or finding.severity != Severity.CRITICAL:
            continue
        about = current.get(pause_finding(finding.constraint, Severity.CRITICAL, "").fingerprint)
        if about is not None and about.severity != Severity.CRITICAL:
            message = f"{about.message} Since then, it has reported {quoted(finding)}"
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
