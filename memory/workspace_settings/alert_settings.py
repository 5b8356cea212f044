"""Alert settings of a workspace: when an alert escalates, and the alert limits of a constraint.

The operator's settings (`UAC_` and the name) apply to all workspaces; a workspace may override
them.
"""

import datetime
from dataclasses import dataclass

from memory.workspace_settings import overrides
from memory.workspace_settings.overrides import Chosen, Number

# A year: a longer wait means never.
MOST_MINUTES = 366 * 24 * 60
# More would not fit into the answer of a sandbox.
MOST_ALERTS = 1000
MOST_OPENINGS = 10_000
# A finding that is opened this often within a day is flapping.
OPENINGS_OF_ONE = 5
DAY = datetime.timedelta(hours=24)


NUMBERS = (
    Number("escalate_critical_minutes", 0, MOST_MINUTES),
    Number("escalate_warning_minutes", 0, MOST_MINUTES),
    Number("escalate_info_minutes", 0, MOST_MINUTES),
    Number("alerts_per_constraint", 1, MOST_ALERTS),
    Number("openings_per_day", 1, MOST_OPENINGS),
)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The effective settings. Minutes of 0 mean never."""

    escalate_critical_minutes: int
    escalate_warning_minutes: int
    escalate_info_minutes: int
    alerts_per_constraint: int
    openings_per_day: int

    def escalates_after(self, severity: str) -> datetime.timedelta | None:
        """Return how long an alert of this severity may stay open; None if it never escalates."""
        minutes = int(getattr(self, f"escalate_{severity}_minutes"))
        return datetime.timedelta(minutes=minutes) if minutes else None


def holding(own: Chosen) -> Holding:
    """Return the effective settings under these overrides."""
    return Holding(**overrides.holding(NUMBERS, own))


def in_words(own: Chosen) -> list[str]:
    """Describe the effective settings for the staff."""
    holds = holding(own)
    escalation = ", ".join(
        f"{severity} {_duration(holds.escalates_after(severity))}"
        for severity in ("critical", "warning", "info")
    )
    return [
        f"An alert that nobody acknowledges is escalated: {escalation}.",
        f"A constraint is paused that finds more than {holds.alerts_per_constraint} at once, would"
        f" open more than {holds.openings_per_day} alerts of a user within 24 hours, or opens the"
        f" same one {OPENINGS_OF_ONE} times within 24 hours.",
    ]


def _duration(span: datetime.timedelta | None) -> str:
    if span is None:
        return "never"
    minutes = int(span.total_seconds() // 60)
    return f"after {minutes // 60} h" if minutes % 60 == 0 else f"after {minutes} min"
