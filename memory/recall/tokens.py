"""Estimates of how many tokens of a language model's vocabulary a text takes up.

A provider's own tokenizer can't be used: each model has another, and few can be had without the
network. What a character costs depends mostly on its script, and for Latin letters on whether they
are English, which vocabularies cover best. The rates were measured with cl100k_base. Newer
vocabularies need fewer tokens for most scripts, so a text that fits by this estimate fits them too.
"""

import math
import re

from memory.recall.search.words import STOP_WORDS

_LATIN = "\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff"
_LATIN_LETTERS = re.compile(f"[{_LATIN}]")
_WORDS = re.compile("[a-z]{3,}")
# The parts of words that are usually one token: `camelCase` has two, `HTTP` is made of several.
_PARTS = re.compile(f"[A-Z]?[a-z{_LATIN}]+|(?<![A-Za-z])[A-Z](?![A-Za-z])")
_LONG_PARTS = re.compile(f"[a-z{_LATIN}]{{7,}}")
_CAPITALS = re.compile("[A-Z]{2,}(?![a-z])")
_HUMPS = re.compile("(?<=[a-z])[A-Z]")
_SPACED_DIGITS = re.compile(r" (?=\d)")
_DIGITS = re.compile(r"\d{1,3}")
_MARKS = re.compile(r"[!-/:-@\[-`{-~]+")
_MARKED_WORDS = re.compile(rf"(?<![!-/:-@\[-`{{-~])[!-/:-@\[-`{{-~](?=[A-Za-z{_LATIN}])")
_CODE_MARKS = re.compile(r"[\"#$*+/;<=>@\\_`{|}]|(?<=[a-zA-Z])[(.](?=[a-zA-Z])")
_INDENTS = re.compile(r"[ \t]{2,}")
# Base64, hashes and other long strings of letters and digits without words.
_STRING = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_HEXADECIMAL = re.compile("[0-9a-f-]+")

# The tokens per character of other scripts. A character of a script that isn't listed costs OTHER.
_PER_CHARACTER = tuple(
    (re.compile(f"[{characters}]"), tokens)
    for characters, tokens in (
        ("\u0370-\u03ff\u1f00-\u1fff", 1.05),  # Greek
        ("\u0590-\u05ff", 1.19),  # Hebrew
        ("\u0600-\u06ff\u0750-\u077f", 0.86),  # Arabic
        ("\u0900-\u097f", 1.2),  # Devanagari
        ("\u0980-\u09ff", 1.4),  # Bengali
        ("\u0b80-\u0bff\u0d00-\u0d7f", 1.65),  # Tamil, Malayalam
        ("\u0e00-\u0e7f", 0.95),  # Thai
        ("\u2000-\u2bff\u3000-\u303f\uff00-\uffef\u00a1-\u00bf", 1.0),  # punctuation, symbols
        ("\u3040-\u309f", 0.88),  # Hiragana
        ("\u30a0-\u30ff", 0.97),  # Katakana
        ("\uac00-\ud7af", 1.23),  # Hangul
        ("\U00010000-\U0010ffff", 2.7),  # emoji
    )
)
_OTHER = 2.0
_CYRILLIC, _HAN = re.compile("[\u0400-\u052f]"), re.compile("[\u3400-\u9fff\uf900-\ufaff]")
# The letters and characters by which to tell Russian from other languages in Cyrillic letters, and
# Japanese and traditional from simplified Chinese.
_RUSSIAN = re.compile("[ыэЫЭ]")
_KANA = re.compile("[\u3040-\u30ff]")
_TRADITIONAL = re.compile("[這個們來時會對說國學經過還後為與從電話開關問題點讓見醫藥東車長門]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")


# The cost of a line break after a line: usually, it is part of a punctuation mark's token.
LINE_BREAK = 0.4


def tokens_in(text: str) -> int:
    """Return the estimated number of tokens in a text.

    A text's estimate is the sum of its lines' estimates, including their line breaks.
    """
    return math.ceil(sum(map(cost_of_line, text.split("\n"))) - LINE_BREAK) if text else 0


def tokens_of_words(text: str) -> float:
    """Return the estimated number of tokens in a part of a line."""
    return cost_of_line(text) - LINE_BREAK


def cost_of_line(line: str) -> float:
    """Return the estimated number of tokens in a line, including its line break."""
    blobs = list(filter(_is_blob, _STRING.findall(line)))
    if blobs:
        line = _STRING.sub(lambda string: "" if _is_blob(string[0]) else string[0], line)
    cost = LINE_BREAK + sum(map(_cost_of_blob, blobs)) + _cost_of_ascii_and_latin(line)
    return cost if line.isascii() else cost + _cost_of_other_scripts(line)


def _is_blob(string: str) -> bool:
    is_mixed = any(map(str.isdigit, string)) and any(map(str.isalpha, string))
    return is_mixed and (not string.islower() or bool(_HEXADECIMAL.fullmatch(string)))


def _cost_of_blob(blob: str) -> float:
    return len(blob) * (0.61 if _HEXADECIMAL.fullmatch(blob) else 0.72)


def _cost_of_ascii_and_latin(line: str) -> float:
    parts = _PARTS.findall(line)
    letters, number = sum(map(len, parts)), len(parts)
    longer = _LONG_PARTS.findall(line)
    english = number + 0.08 * (sum(map(len, longer)) - 6 * len(longer))
    foreign = 0.425 * letters - 0.7 * number
    share = _share_of_english(line)
    marks = _MARKS.findall(line)
    return (
        share * english
        + (1 - share) * foreign
        + 0.34 * sum(map(len, _CAPITALS.findall(line)))
        + (0 if line.isascii() else 1.75 * len(_LATIN_LETTERS.findall(line)))
        + len(_DIGITS.findall(line))
        + len(_SPACED_DIGITS.findall(line))
        + 0.85 * len(marks)
        + 0.17 * sum(map(len, marks))
        - 0.95 * len(_MARKED_WORDS.findall(line))
        + 0.7 * len(_INDENTS.findall(line))
        - 0.7 * share * len(_HUMPS.findall(line))
    )


def _share_of_english(line: str) -> float:
    """Return how much of a line's Latin text is English or code, whose words are English, too.

    One in four words of English prose is a stop word with at least three letters; in other
    languages, one in twenty looks like one.
    """
    words = _WORDS.findall(line.lower())
    stop_words = sum(map(STOP_WORDS.__contains__, words))
    by_words = ((stop_words + 1.2) / (len(words) + 6) - 0.06) / 0.1
    letters = sum(map(len, words))
    by_marks = (len(_CODE_MARKS.findall(line)) / (letters + 20) - 0.03) / 0.04
    return min(1.0, max(0.0, by_words, by_marks))


def _cost_of_other_scripts(line: str) -> float:
    rest = len(_NOT_ASCII.findall(line)) - len(_LATIN_LETTERS.findall(line))
    cost = 0.0
    for characters, per_character in _PER_CHARACTER:
        if number := len(characters.findall(line)):
            rest -= number
            cost += number * per_character
    if number := len(_CYRILLIC.findall(line)):
        rest -= number
        cost += number * (0.5 if len(_RUSSIAN.findall(line)) > number / 150 else 0.65)
    if number := len(_HAN.findall(line)):
        rest -= number
        if _KANA.search(line):
            cost += number * 1.34
        else:
            is_traditional = len(_TRADITIONAL.findall(line)) > number / 25
            cost += number * (1.5 if is_traditional else 1.27)
    return cost + rest * _OTHER
