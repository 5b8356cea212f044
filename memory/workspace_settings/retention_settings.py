"""How long a workspace keeps what was said, what ran, and calls of language models.

The operator's settings (`UAC_` and the name) hold for all workspaces; one may have its own.
"""

from dataclasses import asdict, dataclass, fields

from django.conf import settings

# A century: who keeps longer means for ever.
MOST_DAYS = 36_525
# A run is what a request with an Idempotency-Key came to, which may be repeated for a week.
LEAST_DAYS = {"keep_messages_days": 1, "keep_runs_days": 8, "keep_llm_calls_days": 1}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a workspace has chosen; None is as everywhere, 0 for ever."""

    keep_messages_days: int | None = None
    keep_runs_days: int | None = None
    keep_llm_calls_days: int | None = None


def holding(chosen: Chosen) -> dict[str, int]:
    """Return what holds where this was chosen: name → days, 0 for ever."""
    return {
        name: getattr(settings, f"UAC_{name.upper()}") if own is None else own
        for name, own in asdict(chosen).items()
    }


def problems(chosen: Chosen) -> dict[str, str]:
    """Return what is wrong with a choice, and what to choose instead, by name."""
    return {
        name: f"From {LEAST_DAYS[name]} to {MOST_DAYS} days, or 0 for ever, not {days}."
        for name, days in asdict(chosen).items()
        if days and not LEAST_DAYS[name] <= days <= MOST_DAYS
    }


def wrong_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    everywhere = Chosen(
        **{one.name: getattr(settings, f"UAC_{one.name.upper()}") for one in fields(Chosen)}
    )
    return {f"UAC_{name.upper()}": problem for name, problem in problems(everywhere).items()}


def in_words(chosen: Chosen) -> list[str]:
    """Say what holds, for the staff."""
    names = {
        "keep_messages_days": "The words of messages are kept",
        "keep_runs_days": "Runs are kept",
        "keep_llm_calls_days": "Calls of language models are kept",
    }
    return [
        f"{names[name]} {f'{days} days' if days else 'for ever'}."
        for name, days in holding(chosen).items()
    ]
