"""Terms: the units of text that are indexed and searched for.

A term is a word stripped of case, accents and English endings. Words in other languages are matched
as written; text in scripts without spaces is cut into pairs of characters.
"""

import datetime
import hashlib
import re
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

import Stemmer

from memory.kernel.texts import with_few_marks

# English words that carry no information about a topic; the last line has the endings of
# contractions.
_STOP_TEXT = """
    a about above after again against all am an and any are as at be because been before being
    below between both but by can could did do does doing down during each few for from further had
    has have having he her here hers herself him himself his how i if in into is it its itself just
    me more most my myself no nor not now of off on once only or other our ours ourselves out over
    own same she should so some such than that the their theirs them themselves then there these
    they this those through to too under until up very was we were what when where which while who
    whom why will with would you your yours yourself yourselves
    d ll m o re s t ve
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
# Scripts without spaces between words: Han, kana, hangul; Thai, Lao, Tibetan, Myanmar, Khmer.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
# Python doesn't count the combining marks of Indian scripts as letters, but they belong to words.
LETTER = rf"(?:[^\W_{UNSPACED}]|[\u0900-\u0963\u0966-\u0dff])"
_WORD = re.compile(
    rf"(?P<day>(?<!\d)\d{{4}}-\d{{2}}-\d{{2}}(?!\d))|(?P<unspaced>[{UNSPACED}]+)|(?P<word>{LETTER}+)"
)
# Simpler patterns for lower-case ASCII text without dates, i.e. most text; they take a third of the
# time.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ASCII_WORD = re.compile("[a-z0-9]+")
_UNSPACED_RUNS = re.compile(f"[{UNSPACED}]+")
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
_ACCENTS = re.compile("[\u0300-\u036f]")
# Maximum number of characters in a word; no real word is longer. Only the beginning of a longer
# string is matched.
_LONGEST = 64

_local = threading.local()  # a stemmer must not be shared between threads


def terms(text: str) -> list[str]:
    """Return a text's terms in order, without stop words."""
    return [_term(word) for word in _words(text) if word not in STOP_WORDS]


def terms_of_day(day: datetime.date) -> list[str]:
    """Return the terms by which a text may refer to a day: year, month and day of the month."""
    return [str(day.year), _term(MONTHS[day.month - 1]), str(day.day)]


@lru_cache(maxsize=1 << 16)
def identity(term: str) -> int:
    """Return the number that represents a term in an index: 63 bits of its hash."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def number_of_words(text: str) -> int:
    """Count the words in a text; in scripts without spaces, each character counts as one."""
    return len(text.split()) + sum(len(run) for run in _UNSPACED_RUNS.findall(text))


def best_part(text: str, wanted: Collection[str], length: int) -> str:
    """Return the text or, if it is longer than `length`, the part with the most wanted terms."""
    if len(text) <= length:
        return text
    places = [
        place
        for place, piece in _pieces(text)
        if any(_term(word) in wanted for word in _words(piece))
    ]
    best, most = 0, 0
    for index, place in enumerate(places):
        within = bisect_left(places, place + length) - index
        if within > most:
            best, most = place, within
    start = min(best, len(text) - length)
    return text[start : start + length]


def written_words(text: str) -> list[str]:
    """Return a text's words as they are written; in scripts without spaces, pairs of characters."""
    return [written[:_LONGEST] for _, written in _pieces(text)]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words in a text, with their positions."""
    for match in _WORD.finditer(text):
        start, written = match.start(), match[0]
        if match.lastgroup == "unspaced":
            for offset in range(max(1, len(written) - 1)):
                yield start + offset, written[offset : offset + 2]
        else:
            yield start, written


def _words(text: str) -> Iterable[str]:
    text = text.casefold()
    if text.isascii():
        if "-" not in text or not _DAY.search(text):
            return [word[:_LONGEST] for word in _ASCII_WORD.findall(text)]
    else:
        decomposed = _ACCENTS.sub("", unicodedata.normalize("NFKD", with_few_marks(text)))
        text = unicodedata.normalize("NFC", decomposed)
    return _words_of_any_script(text)


def _words_of_any_script(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0]
        if match.lastgroup == "word":
            yield word[:_LONGEST]
        elif match.lastgroup == "unspaced":
            yield from (word[start : start + 2] for start in range(max(1, len(word) - 1)))
        else:
            yield from _named(word)


def _named(day: str) -> list[str]:
    """Return the words for a day written as 2026-03-01, or the numbers if there is no such day."""
    try:
        date = datetime.date.fromisoformat(day)
    except ValueError:
        return day.split("-")
    return [str(date.year), MONTHS[date.month - 1], str(date.day)]


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    if not hasattr(_local, "stemmer"):
        _local.stemmer = Stemmer.Stemmer("english")
    stem: str = _local.stemmer.stemWord(word)
    return stem
