"""Settings for stopping a language model with a bad track record: what is judged, and limits.

See `memory.llm.track_records`. The operator's settings (`UAC_` followed by the field's name in
capitals) apply to all workspaces; a workspace may override them.
"""

from dataclasses import dataclass

NEVER = 100


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """The settings that take effect. A limit of 100 percent never stops a model."""

    llm_judged_sessions: int
    llm_judged_days: int
    llm_judged_minimum: int
    llm_refused_percent: int
    llm_undone_percent: int

    @property
    def may_stop(self) -> bool:
        """Return whether any track record could stop a model."""
        return min(self.llm_refused_percent, self.llm_undone_percent) < NEVER


def in_words(limits: EffectiveSettings) -> str:
    """Describe to the staff when a model is stopped."""
    return (
        "A model is stopped when, after all attempts, the gate refused more than"
        f" {limits.llm_refused_percent} % of its sessions, or when more than"
        f" {limits.llm_undone_percent} % of its accepted edits were undone. It is judged by its"
        f" last {limits.llm_judged_sessions} sessions within {limits.llm_judged_days} days, once"
        f" there are at least {limits.llm_judged_minimum}."
    )
