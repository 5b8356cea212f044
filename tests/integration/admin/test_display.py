"""Display of values: nothing is hidden, and everybody can tell the colours apart."""

import re
from typing import Any

import pytest
from django.contrib.staticfiles import finders

from memory.kernel.admin import display
from memory.log.admin import links
from memory.log.models.entries import EntryKind, LogEntry


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümläuts", "plain, with ümläuts"),
        ("two\n\tlines\r\n", "two\n\tlines\r\n"),
        ("שלום עולם", "שלום עולם"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d⚕️", "👩\u200d⚕️"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert display.visible(text) == shown


def test_source_is_numbered_and_escaped() -> None:
    shown = str(display.source("if a < b:\n    pass\n"))

    assert re.findall(r'data-number="(\d+)"', shown) == ["1", "2"]
    assert '<span class="k">if</span> a &lt; b:\n' in shown


def record(data: dict[str, Any]) -> LogEntry:
    return LogEntry(kind=EntryKind.RECORD, data=data)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (LogEntry(content="hello\n\nthere"), "hello there"),
        (LogEntry(content=None, data=None), ""),
        (
            record({"type": "Trip", "key": "t", "data": {"to": "Oslo", "days": 3}}),
            "Trip t: to: Oslo, days: 3",
        ),
        (record({"type": "Trip", "key": "t", "retired": True}), "Trip t: retired"),
        (record({"data": {"none": None, "list": [], "zero": 0}}), "zero: 0"),
        (record({}), ""),
    ],
)
def test_an_entry_is_told_in_a_line(entry: LogEntry, says: str) -> None:
    assert links.summary(entry) == says


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("أموكسيسيلين (class penicillin) conflicts with the allergy to البنسلين", ' dir="ltr"'),
        ("وصف الطبيب لها Vitamin D مع الطعام كل صباح", ""),
        ("يتعارض أموكسيسيلين (class penicillin) مع حساسية البنسلين", ""),
        ("فاطمة (Fatima)", ""),
        ("It conflicts with the allergy", ""),
    ],
)
def test_a_sentence_keeps_its_direction_if_it_begins_with_a_foreign_name(
    text: str, direction: str
) -> None:
    assert str(display.inline(text)) == f"<bdi{direction}>{text}</bdi>"


def test_a_word_of_no_known_tone_is_plain() -> None:
    assert display.badge("<odd>") == '<span class="badge plain">&lt;odd&gt;</span>'


def test_every_badge_can_be_read() -> None:
    found = finders.find("memory/admin.css")
    assert isinstance(found, str)
    with open(found) as file:  # noqa: PTH123 - a path of the finders
        tones = re.findall(r"\.badge\.(\w+) \{ background: (#\w+); color: (#\w+);", file.read())

    assert {tone for tone, _, _ in tones} == {*display._TONES.values(), "good"}
    for tone, ground, letters in tones:
        lighter, darker = sorted([_luminance(ground), _luminance(letters)], reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, tone


def _luminance(colour: str) -> float:
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_are_followed_by_the_nouns_plural() -> None:
    nouns = ("key", "entry", "day", "alert")
    assert [display.counted(2, noun) for noun in nouns] == [
        *("2 keys", "2 entries", "2 days", "2 alerts"),
    ]
    assert [display.counted(1, noun) for noun in nouns] == ["1 key", "1 entry", "1 day", "1 alert"]
