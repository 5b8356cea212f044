"""Settings that stop a language model for its track record: the sessions judged, and the limits.

See `memory.llm.track_records`. The operator's settings (`UAC_` and the name) apply to all
workspaces; a workspace may override them.
"""

from dataclasses import dataclass

from memory.workspace_settings import overrides
from memory.workspace_settings.overrides import Chosen, Number

MAX_SESSIONS = 500
# Calls may be deleted after a day; the results of their sessions are unknown from then on.
MAX_DAYS = 90
NEVER = 100

NUMBERS = (
    Number("llm_judged_sessions", 1, MAX_SESSIONS),
    Number("llm_judged_days", 1, MAX_DAYS),
    Number("llm_judged_minimum", 1, MAX_SESSIONS),
    Number("llm_refused_percent", 0, NEVER),
    Number("llm_undone_percent", 0, NEVER),
)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The effective settings. A share of 100 percent stops no model."""

    llm_judged_sessions: int
    llm_judged_days: int
    llm_judged_minimum: int
    llm_refused_percent: int
    llm_undone_percent: int

    @property
    def may_stop(self) -> bool:
        """Tell whether any track record could stop a model."""
        return min(self.llm_refused_percent, self.llm_undone_percent) < NEVER


def holding(own: Chosen) -> Holding:
    """Return the effective settings under these overrides."""
    return Holding(**overrides.holding(NUMBERS, own))


def problems(own: Chosen) -> dict[str, str]:
    """Return the problems of a workspace's overrides, each with a fix, by name."""
    found = overrides.out_of_range(NUMBERS, own)
    if found or (own.get("llm_judged_minimum"), own.get("llm_judged_sessions")) == (None, None):
        return found
    holds = holding(own)
    least, most = holds.llm_judged_minimum, holds.llm_judged_sessions
    if least <= most:
        return {}
    if own.get("llm_judged_minimum") is not None:
        return {
            "llm_judged_minimum": f"No more than {most} sessions are looked at"
            f" (llm_judged_sessions): choose no more, or {least} or more as llm_judged_sessions."
        }
    return {
        "llm_judged_sessions": f"A model is judged by {least} sessions or more"
        f" (llm_judged_minimum): choose no fewer, or {most} or fewer as llm_judged_minimum."
    }


def wrong_settings() -> dict[str, str]:
    """Return the invalid settings, each with its problem, by name."""
    return overrides.by_setting(NUMBERS, problems(overrides.everywhere(NUMBERS)))


def in_words(own: Chosen) -> str:
    """Describe for the staff when a model is stopped."""
    holds = holding(own)
    return (
        f"A model is stopped when the gate refused more than {holds.llm_refused_percent} % of its"
        f" sessions in the end, or more than {holds.llm_undone_percent} % of its accepted edits"
        f" were undone: of its last {holds.llm_judged_sessions} sessions within"
        f" {holds.llm_judged_days} days, and of {holds.llm_judged_minimum} at least."
    )
