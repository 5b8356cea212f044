"""Words without their languages' endings: "Москва" and "Москве" have one stem, Köln and Kölner."""

import re
import threading
from collections.abc import Iterable

import Stemmer

from memory.language.detection import language_of

# The languages whose endings Snowball knows.
STEMMED = frozenset(
    {
        *("ar", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "ga"),
        *("hi", "hu", "hy", "id", "it", "lt", "ne", "nl", "no", "pl", "pt", "ro", "ru", "sr"),
        *("sv", "ta", "tr"),
    }
)
MIN_STEM = 3  # shorter stems are shared by words that have nothing to do with each other

# British spellings, and what makes them American: colour, organise, centre, travelled.
_AMERICAN = (
    (re.compile(r"(?<=\w{3})our(?=(?:s|ed|ing|ful|less|able|ite|ites|hoods?|al)?$)"), "or"),
    (
        re.compile(
            r"(al|an|ar|at|er|gn|ic|id|im|it|og|on|or|tom)([iy])s"
            r"(?=(?:e|es|ed|ing|er|ers|ation|ations)$)"
        ),
        r"\1\2z",
    ),
    (re.compile(r"(?<=\w\w)([bt])re(?=s?$)"), r"\1er"),
    (re.compile(r"(?<=[aeiou])([^aeiou]{1,2}e)ll(?=(?:ed|ing|er|ers)$)"), r"\1l"),
)

_local = threading.local()  # a stemmer must not be shared between threads


def stem(word: str, language: str) -> str:
    """Return a folded word without its endings in a language.

    If the endings aren't known, only the beginning of a long word is kept. British and American
    spellings of an English word have one stem.
    """
    if language not in STEMMED:
        return word[: max(4, min(6, len(word) - 2))]
    if language == "en":
        for british, american in _AMERICAN:
            word = british.sub(american, word)
    stemmers: dict[str, Stemmer.Stemmer] = _local.__dict__.setdefault("stemmers", {})
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(language)
    stemmed: str = stemmers[language].stemWord(word)
    return stemmed


class Stems:
    """The stems of folded words of texts in other languages than English, by language."""

    def __init__(self) -> None:
        self._by_language: dict[str, set[str]] = {}

    def add(self, text: str, words: Iterable[str]) -> None:
        """Add the words of a text, unless it may be in English."""
        if (language := language_of(text)) != "en":
            stems = {stem(word, language) for word in words}
            self._by_language.setdefault(language, set()).update(stems)

    def update(self, other: "Stems") -> None:
        """Add the stems of another object."""
        for language, stems in other._by_language.items():
            self._by_language.setdefault(language, set()).update(stems)

    def have(self, word: str) -> bool:
        """Return whether a text has another form of the word, by the endings of its language."""
        return any(
            len(one := stem(word, language)) >= MIN_STEM and one in stems
            for language, stems in self._by_language.items()
        )
