"""How alerts live in a workspace: when one is escalated, and how much a constraint may say.

The operator's settings (`UAC_` and the name) hold for all workspaces; one may have its own.
"""

import datetime
from dataclasses import asdict, dataclass, fields

from django.conf import settings

# A year: who waits longer means never.
MOST_MINUTES = 366 * 24 * 60
# More would not fit into the answer of a sandbox.
MOST_ALERTS = 1000
MOST_OPENINGS = 10_000
# The same finding, opened so often within a day, flaps.
OPENINGS_OF_ONE = 5
DAY = datetime.timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a workspace has chosen; None is as everywhere."""

    escalate_critical_minutes: int | None = None
    escalate_warning_minutes: int | None = None
    escalate_info_minutes: int | None = None
    alerts_per_constraint: int | None = None
    openings_per_day: int | None = None


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


def holding(chosen: Chosen) -> Holding:
    """Return what holds where this was chosen."""
    return Holding(
        **{
            name: getattr(settings, f"UAC_{name.upper()}") if own is None else own
            for name, own in asdict(chosen).items()
        }
    )


def problems(chosen: Chosen) -> dict[str, str]:
    """Return what is wrong with a choice, and what to choose instead, by name."""
    found: dict[str, str] = {}
    for name, value in asdict(chosen).items():
        least, most = _bounds(name)
        if value is not None and value < least:
            found[name] = f"At least {least}, not {value}."
        elif value is not None and value > most:
            found[name] = f"At most {most}, not {value}."
    return found


def wrong_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    everywhere = Chosen(
        **{one.name: getattr(settings, f"UAC_{one.name.upper()}") for one in fields(Chosen)}
    )
    return {f"UAC_{name.upper()}": problem for name, problem in problems(everywhere).items()}


def in_words(chosen: Chosen) -> list[str]:
    """Say what holds, for the staff."""
    holds = holding(chosen)
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


def _bounds(name: str) -> tuple[int, int]:
    if name.endswith("_minutes"):
        return 0, MOST_MINUTES
    return 1, MOST_ALERTS if name == "alerts_per_constraint" else MOST_OPENINGS


def _duration(span: datetime.timedelta | None) -> str:
    if span is None:
        return "never"
    minutes = int(span.total_seconds() // 60)
    return f"after {minutes // 60} h" if minutes % 60 == 0 else f"after {minutes} min"
