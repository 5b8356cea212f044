"""Find the times of day in a text."""

import re

from memory.language.dates_in_text import FLAGS
from memory.language.numbers_in_text import spelled

_CLOCK = re.compile(
    r"(?<![\d.,])(\d{1,2})[:.h](\d{2})(?::(\d{2}))?(?![\d])\s*(am|pm|a\.m|p\.m)?", FLAGS
)
_HOUR = re.compile(r"(?<![\d.,:])(\d{1,2})\s*(am|pm|a\.m|p\.m|o['’]clock|uhr|h)\b", FLAGS)
_AT = re.compile(
    r"\b(?:at|by|from|until|till|around)\s+(\d{1,2})(?![\d:.,/-]|\s*(?:[ap]m|[ap]\.m)\b)", FLAGS
)
_AT_WORD = re.compile(r"\b(?:at|by|from|until|till|around)\s+([a-z]+)\b", FLAGS)
_PAST = re.compile(r"\b(half|quarter|\d{1,2})\s+(past|to|after|before)\s+([a-z]+|\d{1,2})\b", FLAGS)


def find_times(text: str) -> set[tuple[int, int]]:
    """Return every possible reading, as hour and minute, of each time of day in a text."""
    times: set[tuple[int, int]] = set()
    for match in _CLOCK.finditer(text):
        times |= _times(int(match[1]), int(match[2]), match[4] or "")
    for match in _HOUR.finditer(text):
        times |= _times(int(match[1]), 0, match[2])
    for match in _AT.finditer(text):
        times |= _times(int(match[1]), 0, "")
    for match in _AT_WORD.finditer(text):
        times |= {time for hour in _hours(match[1]) for time in _times(hour, 0, "")}
    for match in _PAST.finditer(text):
        minutes = {"half": 30, "quarter": 15}.get(match[1].lower()) or int(
            re.sub(r"\D", "", match[1]) or 0
        )
        for hour in _hours(match[3]):
            before = match[2].lower() in ("to", "before")
            times |= _times(hour - before, (60 - minutes if before else minutes) % 60, "")
    if re.search(r"\b(?:noon|midday)\b", text, FLAGS):
        times.add((12, 0))
    if re.search(r"\bmidnight\b", text, FLAGS):
        times.add((0, 0))
    return times


def _hours(word: str) -> list[int]:
    if word.isdigit():
        return [int(word)]
    return [int(reading) for quantity in spelled(word) for reading in quantity.readings]


def _times(hour: int, minute: int, half: str) -> set[tuple[int, int]]:
    half = half.lower().replace(".", "")
    if half in ("am", "pm"):
        hours = [hour % 12 + (12 if half == "pm" else 0)]
    elif half in ("uhr", "h") or hour > 12 or hour == 0:
        hours = [hour]
    else:
        hours = [hour % 24, (hour + 12) % 24]
    return {(hour, minute) for hour in hours if 0 <= hour < 24 and 0 <= minute < 60}
