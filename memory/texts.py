"""Texts that people, models and backends wrote, made safe to look at where they stand in others."""

import re

# Control characters but tab and line ends, bidirectional embeddings, overrides and isolates,
# characters of no width, tags. The marks and joiners of Arabic, Hebrew and emoji stay as they are.
STEERING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return the text with every character that steers or hides others written as an escape."""
    return STEERING.sub(_escaped, text)


def shortened(text: str, length: int = 120) -> str:
    """Return the beginning of a text, made visible."""
    text = visible(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str, length: int) -> str:
    """Return the beginning of a text in one line, which no header of a mail is ended by."""
    return shortened(" ".join(text.split()), length)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
