"""Settings for how long a workspace keeps the text of messages, runs, and model calls."""

from collections.abc import Mapping

WHAT = {
    "keep_messages_days": "The words of messages are kept",
    "keep_runs_days": "Runs are kept",
    "keep_llm_calls_days": "Calls of language models are kept",
}


def in_words(days: Mapping[str, int]) -> list[str]:
    """Say what takes effect, for the staff; 0 is for ever."""
    return [
        f"{what} {f'{days[name]} days' if days[name] else 'for ever'}."
        for name, what in WHAT.items()
    ]
