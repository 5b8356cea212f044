"""Settings for how long a workspace keeps runs, model calls, and message text."""

from collections.abc import Mapping

WHAT = {
    "keep_messages_days": "Message text is kept",
    "keep_runs_days": "Runs are kept",
    "keep_llm_calls_days": "Language model calls are kept",
}


def describe_retention(days: Mapping[str, int]) -> list[str]:
    """Describe the effective settings to staff; 0 means that data is kept for ever."""
    return [
        f"{what} {f'for {days[name]} days' if days[name] else 'for ever'}."
        for name, what in WHAT.items()
    ]
