"""Alert limits: find constraints that are too noisy, and write the notice to staff.

Nobody reads one alert among hundreds, and nobody trusts an alert that comes and goes all day. A
constraint that is too noisy is therefore paused: it opens no new alerts, and its open alerts stay
open.
"""

import datetime
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.alerts.models.alerts import Alert, AlertKind, PausedConstraint, severity_rank
from memory.kernel.models.users import MemoryUser
from memory.kernel.settings.alert_settings import DAY, OPENINGS_OF_ONE, EffectiveSettings

if TYPE_CHECKING:
    from memory.alerts.findings import ConstraintFinding

QUOTED = 3
QUOTED_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class ExceededLimit:
    """A constraint that exceeded an alert limit, with its findings from this run.

    If `may_open` is set, the constraint is only flapping, so its new findings still open alerts.
    """

    constraint: str
    reason: str
    findings: "Sequence[ConstraintFinding]"
    may_open: bool = False

    @property
    def message(self) -> str:
        """The notice to staff: the reason for the pause, its consequence, and the remedy."""
        gravest = sorted(self.findings, key=lambda one: -severity_rank(one.severity))[:QUOTED]
        told = "; ".join(map(quoted, gravest))
        became = "" if self.may_open else " It opened no new alerts."
        return (
            f"{self.constraint} is paused: {self.reason}.{became} Its alerts stay as they are"
            " until it is resumed, either by a change to its source or manually (under paused"
            f" constraints). It reported: {told}"
        )


def find(
    user: MemoryUser,
    said: "Sequence[ConstraintFinding]",
    new: "Sequence[ConstraintFinding]",
    over_limit: "Mapping[str, Sequence[ConstraintFinding]]",
    limits: EffectiveSettings,
    now: datetime.datetime,
    *,
    without: Collection[str],
) -> list[ExceededLimit]:
    """Return the constraints that exceed an alert limit and must be paused.

    `said` contains all findings, and `new` contains the findings that would open alerts.
    `over_limit` maps each constraint that was stopped at the alert limit to a few of its findings.
    `without` names the constraints that are already paused.
    """
    by_constraint: dict[str, list[ConstraintFinding]] = defaultdict(list)
    for finding in said:
        by_constraint[finding.constraint].append(finding)
    opening = Counter(one.constraint for one in new if one.kind == AlertKind.FINDING)
    opened = _opened(user, opening, now)
    exceeded = []
    for constraint in sorted({*by_constraint, *over_limit} - set(without)):
        findings = over_limit.get(constraint) or by_constraint[constraint]
        before = opened[constraint]
        flapping = [
            one
            for one in new
            if one.constraint == constraint and before[one.fingerprint] + 1 >= OPENINGS_OF_ONE
        ]
        may_open = False
        if constraint in over_limit or len(findings) > limits.alerts_per_constraint:
            limit = limits.alerts_per_constraint
            reason = (
                f"it raised more than {limit} alerts at once"
                if constraint in over_limit
                else f"it raised {len(findings)} alerts at once, more than {limit}"
            )
        elif before.total() + opening[constraint] > limits.openings_per_day:
            reason = f"it would open more than {limits.openings_per_day} alerts within 24 hours"
        elif flapping:
            reason = f"it opened the same alert {OPENINGS_OF_ONE} times within 24 hours"
            findings, may_open = flapping, True
        else:
            continue
        exceeded.append(
            ExceededLimit(
                constraint=constraint, reason=reason, findings=findings, may_open=may_open
            )
        )
    return exceeded


def _opened(
    user: MemoryUser, constraints: Collection[str], now: datetime.datetime
) -> Mapping[str, Counter[str]]:
    """Return how often each constraint opened each alert, keyed by constraint, then fingerprint.

    Only alerts opened in the last 24 hours are counted or, if the constraint was resumed during
    that time, only alerts opened since then.
    """
    opened: dict[str, Counter[str]] = defaultdict(Counter)
    if not constraints:
        return opened
    since = now - DAY
    pauses = PausedConstraint.objects.filter(user=user, resumed_at__gt=since)
    resumed = {one.constraint: one.resumed_at or now for one in pauses.order_by("resumed_at")}
    rows = Alert.objects.filter(
        user=user,
        kind=AlertKind.FINDING,
        constraint__in=list(constraints),
        opened_at__gt=since,
    ).values_list("constraint", "fingerprint", "opened_at")
    for constraint, fingerprint, at in rows:
        if at > resumed.get(constraint, since):
            opened[constraint][fingerprint] += 1
    return opened


def quoted(finding: "ConstraintFinding") -> str:
    """Return a finding as text for staff: its severity and the beginning of its message."""
    text = finding.message
    if len(text) > QUOTED_CHARACTERS:
        text = text[: QUOTED_CHARACTERS - 1] + "…"
    return f"{finding.severity}: {text}"
