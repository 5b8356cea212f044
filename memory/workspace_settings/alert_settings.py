"""How alerts live in a workspace: when one is escalated, and how much a constraint may say.

The operator's settings (`UAC_` and the name) hold for all workspaces; one may have its own.
"""

import datetime
from dataclasses import dataclass

from memory.workspace_settings import overrides
from memory.workspace_settings.overrides import Chosen, Number

# A year: who waits longer means never.
MOST_MINUTES = 366 * 24 * 60
# More would not fit into the answer of a sandbox.
MOST_ALERTS = 1000
MOST_OPENINGS = 10_000
# The same finding, opened so often within a day, flaps.
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
    """What holds. Of the minutes, 0 is never."""

    escalate_critical_minutes: int
    escalate_warning_minutes: int
    escalate_info_minutes: int
    alerts_per_constraint: int
    openings_per_day: int

    def escalates_after(self, severity: str) -> datetime.timedelta | None:
        """Return how long an alert of this severity may be open; None for as long as it is."""
        minutes = int(getattr(self, f"escalate_{severity}_minutes"))
        return datetime.timedelta(minutes=minutes) if minutes else None


def holding(own: Chosen) -> Holding:
    """Return what holds where this was chosen."""
    return Holding(**overrides.holding(NUMBERS, own))


def in_words(own: Chosen) -> list[str]:
    """Say what holds, for the staff."""
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
