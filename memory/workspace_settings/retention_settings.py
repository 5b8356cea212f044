"""Retention settings of a workspace: how long messages, runs and model calls are kept.

The operator's settings (`UAC_` and the name) apply to all workspaces; a workspace may override
them.
"""

from dataclasses import asdict, dataclass, fields

from django.conf import settings

# A century: a longer period means forever.
MOST_DAYS = 36_525
# A run is the result of a request with an Idempotency-Key, which may be repeated for a week.
LEAST_DAYS = {"keep_messages_days": 1, "keep_runs_days": 8, "keep_llm_calls_days": 1}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Overrides of one workspace; None inherits the server's setting, 0 means forever."""

    keep_messages_days: int | None = None
    keep_runs_days: int | None = None
    keep_llm_calls_days: int | None = None


def holding(chosen: Chosen) -> dict[str, int]:
    """Return the effective settings under these overrides: name → days, 0 means forever."""
    return {
        name: getattr(settings, f"UAC_{name.upper()}") if own is None else own
        for name, own in asdict(chosen).items()
    }


def problems(chosen: Chosen) -> dict[str, str]:
    """Return the problems of these overrides, each with a fix, by name."""
    return {
        name: f"From {LEAST_DAYS[name]} to {MOST_DAYS} days, or 0 for ever, not {days}."
        for name, days in asdict(chosen).items()
        if days and not LEAST_DAYS[name] <= days <= MOST_DAYS
    }


def wrong_settings() -> dict[str, str]:
    """Return the invalid settings, each with its problem, by name."""
    everywhere = Chosen(
        **{one.name: getattr(settings, f"UAC_{one.name.upper()}") for one in fields(Chosen)}
    )
    return {f"UAC_{name.upper()}": problem for name, problem in problems(everywhere).items()}


def in_words(chosen: Chosen) -> list[str]:
    """Describe the effective settings for the staff."""
    names = {
        "keep_messages_days": "The words of messages are kept",
        "keep_runs_days": "Runs are kept",
        "keep_llm_calls_days": "Calls of language models are kept",
    }
    return [
        f"{names[name]} {f'{days} days' if days else 'for ever'}."
        for name, days in holding(chosen).items()
    ]
