"""Settings for how long a workspace keeps runs, model calls, and the text of messages."""

from collections.abc import Mapping

WHAT = {
    "keep_messages_days": "The text of messages is kept",
    "keep_runs_days": "Runs are kept",
    "keep_llm_calls_days": "Calls to language models are kept",
}


def in_words(days: Mapping[str, int]) -> list[str]:
    """Describe the effective settings to the staff; 0 means that data is kept for ever."""
    return [
        f"{what} {f'for {days[name]} days' if days[name] else 'for ever'}."
        for name, what in WHAT.items()
    ]
