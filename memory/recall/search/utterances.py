"""Utterances: texts split into words, without a grammar, to find names, persons and dates."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memory.recall.search.languages import (
    AMBIGUOUS_DATES,
    BEFORE_DATES,
    ENGLISH,
    FILLERS,
    LANGUAGES,
    VERBS,
    Language,
)
from memory.recall.search.words import LETTER, UNSPACED
from memory.texts import with_few_marks

# The maximum number of words in a name, and of characters in a word.
MAX_NAME = 4
MAX_WORD = 40

_TOKEN = re.compile(
    rf"(?<!\d)\d{{4}}-\d{{2}}-\d{{2}}(?!\d)|\d+(?:[.,]\d+)+|[{UNSPACED}]+|{LETTER}+|[.,!?;:\n]"
)
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_YEAR = re.compile(r"(?:19|20)\d{2}")
_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th)?")
ENDS = frozenset(".!?\n;")
BREAKS = ENDS | {",", ":", ""}


@dataclass(frozen=True)
class Name:
    """Consecutive capitalised words, and what kind of word precedes them."""

    start: int
    end: int
    written: str
    is_at: bool
    is_towards: bool
    has_determiner: bool
    is_alone: bool
    """Whether the name is an entire sentence, such as "Espresso"."""

    @property
    def may_be_place(self) -> bool:
        """Return whether the name follows a preposition that may introduce a place."""
        return self.is_at or self.is_towards

    @property
    def may_be_person(self) -> bool:
        """Return whether nothing indicates that this is the name of a place or a thing."""
        return not self.is_at and not self.has_determiner and not self.is_alone


@dataclass(frozen=True)
class Utterance:
    """A text as words and punctuation marks."""

    written: Sequence[str]
    folded: Sequence[str]
    language: Language

    @classmethod
    def of(cls, text: str) -> "Utterance":
        """Parse a text."""
        written = _TOKEN.findall(unicodedata.normalize("NFC", with_few_marks(text)))
        folded = [word.casefold() for word in written]
        # In case of a tie, the first language (English) wins.
        language = max(LANGUAGES, key=lambda one: sum(w in one.function_words for w in folded))
        return cls(written, folded, language)

    @property
    def is_of_known_language(self) -> bool:
        """Return whether the text has at least one of its language's function words."""
        return any(word in self.language.function_words for word in self.folded)

    def at(self, place: int) -> str:
        """Return the case-folded word at an index, or "" if the index is outside the text."""
        return self.folded[place] if 0 <= place < len(self.folded) else ""

    def is_initial(self, place: int) -> bool:
        """Return whether the word at an index begins a sentence."""
        return place == 0 or self.at(place - 1) in ENDS | {":"}

    def has_content(self, place: int) -> bool:
        """Return whether the word at an index carries information about the text's topic."""
        word = self.at(place)
        if word in BREAKS or word in self.language.function_words or word in FILLERS:
            return False
        if len(word) > MAX_WORD or word in ENGLISH.function_words:
            return False
        return len(word) > 1 or word.isdigit()

    def is_date(self, place: int) -> bool:
        """Return whether the word at an index is part of a date (a month, day or year)."""
        word = self.at(place)
        if _ISO_DAY.fullmatch(word) or _YEAR.fullmatch(word):
            return True
        if _DAY.fullmatch(word):
            around = (place - 2, place - 1, place + 1, place + 2)
            return any(self._is_month_or_day(one) for one in around)
        return self._is_month_or_day(place)

    def _is_month_or_day(self, place: int) -> bool:
        word = self.at(place)
        if word not in self.language.dates and word not in ENGLISH.dates:
            return False
        if word not in AMBIGUOUS_DATES:
            return True
        before, after = self.at(place - 1), self.at(place + 1)
        is_capital = self.written[place][0].isupper() and not self.is_initial(place)
        by_number = bool(_DAY.fullmatch(before) or _DAY.fullmatch(after) or _YEAR.fullmatch(after))
        return is_capital or before in BEFORE_DATES or by_number

    @cached_property
    def names(self) -> Sequence[Name]:
        """The names in the text, in order; each consists of one or more capitalised words.

        At the beginning of a sentence, a capitalised word counts only if it is likely to be a name.
        """
        found = []
        place = 0
        while place < len(self.written):
            end = place
            last = min(len(self.written), place + MAX_NAME)
            while end < last and self._is_name(end, inside=end > place):
                end += 1
            if end > place:
                found.append(self._name(place, end))
            place = max(end, place + 1)
        return found

    def _is_name(self, place: int, *, inside: bool) -> bool:
        written, word = self.written[place], self.at(place)
        if not written[0].isupper() or not self.has_content(place) or self.is_date(place):
            return False
        if inside or not self.is_initial(place):
            return True
        after = self.at(place + 1)
        follows = after in VERBS or (after.endswith(("s", "ed")) and self.has_content(place + 1))
        return (
            (follows and not word.endswith("ing"))
            or after in BREAKS
            or (place + 1 < len(self.written) and self.written[place + 1][0].isupper())
        )

    def _name(self, start: int, end: int) -> Name:
        before = self.at(start - 1)
        language = self.language
        around = [before] if self.has_content(start - 2) else [before, self.at(start - 2)]
        return Name(
            start,
            end,
            " ".join(self.written[start:end]),
            is_at=any(one in language.at for one in around),
            is_towards=any(one in language.towards for one in around),
            has_determiner=before in language.determiners
            or (
                self.has_content(start - 1)
                and before not in language.relations
                and self.at(start - 2) in language.determiners
            ),
            is_alone=self.is_initial(start) and self.at(end) in BREAKS,
        )

    @cached_property
    def persons(self) -> Sequence[tuple[int, str]]:
        """The people in the text and their indices: names, and words like "sister" or "boss"."""
        called = [
            (place, self.written[place])
            for place, word in enumerate(self.folded)
            if word in self.language.relations
        ]
        named = [(one.start, one.written) for one in self.names if one.may_be_person]
        is_called = {place for place, _ in called}
        return sorted([*called, *(one for one in named if one[0] not in is_called)])

    @cached_property
    def dates(self) -> Sequence[str]:
        """The words in the text that are part of a date."""
        return [word for place, word in enumerate(self.written) if self.is_date(place)]
