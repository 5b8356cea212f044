"""Settings for stopping a language model with a bad track record: what is judged, and limits.

See `memory.llm.track_records`. The operator's settings (`UAC_` plus the field name in uppercase)
apply to all workspaces; a workspace may override them.
"""

from dataclasses import dataclass

NEVER = 100


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """The settings in effect. A limit of 100 percent never stops a model."""

    llm_judged_sessions: int
    llm_judged_days: int
    llm_judged_minimum: int
    llm_refused_percent: int
    llm_undone_percent: int

    @property
    def may_stop(self) -> bool:
        """Return whether any track record could stop a model."""
        return min(self.llm_refused_percent, self.llm_undone_percent) < NEVER


def describe_limits(limits: EffectiveSettings) -> str:
    """Explain to staff when a model is stopped."""
    return (
        "A model is stopped when, after all attempts, the gate has refused more than"
        f" {limits.llm_refused_percent} % of its sessions, or when more than"
        f" {limits.llm_undone_percent} % of its accepted edits have been undone. It is judged by"
        f" its last {limits.llm_judged_sessions} sessions within {limits.llm_judged_days} days,"
        f" once it has at least {limits.llm_judged_minimum} sessions."
    )
