"""A workspace's alert settings: when alerts are escalated, and alert limits per constraint.

The operator's settings (`UAC_` followed by the field's name in capitals) apply to all workspaces
unless a workspace overrides them.
"""

import datetime
from dataclasses import dataclass

# An alert that is opened this many times within a day is flapping.
OPENINGS_OF_ONE = 5
DAY = datetime.timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """The settings in effect. In the `_minutes` fields, 0 means never."""

    escalate_critical_minutes: int
    escalate_warning_minutes: int
    escalate_info_minutes: int
    alerts_per_constraint: int
    openings_per_day: int

    def escalates_after(self, severity: str) -> datetime.timedelta | None:
        """Return the time after which an alert of this severity is escalated; None means never."""
        minutes = int(getattr(self, f"escalate_{severity}_minutes"))
        return datetime.timedelta(minutes=minutes) if minutes else None


def describe_limits(limits: EffectiveSettings) -> list[str]:
    """Describe the effective settings to staff."""
    escalation = ", ".join(
        f"{severity} {_duration(limits.escalates_after(severity))}"
        for severity in ("critical", "warning", "info")
    )
    return [
        f"An alert that nobody acknowledges is escalated: {escalation}.",
        f"A constraint is paused if it raises more than {limits.alerts_per_constraint} alerts at"
        f" once, would open more than {limits.openings_per_day} alerts for a user within 24 hours,"
        f" or opens the same alert {OPENINGS_OF_ONE} times within 24 hours.",
    ]


def _duration(span: datetime.timedelta | None) -> str:
    if span is None:
        return "never"
    minutes = int(span.total_seconds() // 60)
    return f"after {minutes // 60} h" if minutes % 60 == 0 else f"after {minutes} min"
