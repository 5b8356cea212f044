"""Find the dates in a text, with and without a year; `Said` collects all dates and times."""

import calendar
import datetime
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MONTH_NAMES = tuple(name.lower() for name in calendar.month_name[1:])
MONTHS = {
    name.lower(): number
    for names in (MONTH_NAMES, calendar.month_abbr[1:])
    for number, name in enumerate(names, 1)
} | {"sept": 9}

MONTH = rf"(?P<month>{'|'.join(sorted(MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?(?![\d:])"
_AND = r"\s*(?:,|-|–|—|/|&|to|and|or|until|till|through)\s*(?:the\s+)?"
_DAYS = rf"(?P<days>{_DAY}(?:{_AND}{_DAY}){{0,7}})"
YEAR = r"(?P<year>(?:1[5-9]|2[01])\d\d\b|['’]\d\d\b)"
FLAGS = re.IGNORECASE | re.ASCII

_YEAR_FIRST = re.compile(
    r"(?<!\d)(\d{4})\s*[-/.年년]\s*(\d{1,2})\s*[-/.月월]\s*(\d{1,2})(?!\d)", re.IGNORECASE
)
_COMPACT = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)", FLAGS)
_YEAR_LAST = re.compile(r"(?<![\d.,])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?!\d)", FLAGS)
_YEAR_AND_MONTH = re.compile(r"(?<![\d-])(\d{4})-(\d{2})(?![\d-])", FLAGS)
DAY_MONTH = re.compile(rf"\b{_DAYS}\.?\s+(?:of\s+)?{MONTH}(?:,?\s*(?:of\s+)?{YEAR})?", FLAGS)
MONTH_DAY = re.compile(rf"\b{MONTH}\s+(?:the\s+)?{_DAYS}(?:,?\s*{YEAR})?", FLAGS)
_MONTH_YEAR = re.compile(rf"\b{MONTH},?\s*(?:of\s+)?{YEAR}", FLAGS)
_ACCENTS = "\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff"
_ACCENTED_WORD = re.compile(rf"(?<![A-Za-z])[A-Za-z]*[{_ACCENTS}][A-Za-z{_ACCENTS}]*")


@dataclass(frozen=True)
class Said:
    """The dates and times that a text mentions.

    If a date has no year, `days` contains every day that it could mean.
    """

    days: set[datetime.date] = field(default_factory=set)
    months: set[tuple[int, int]] = field(default_factory=set)
    years: set[int] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)

    def has_day(self, day: datetime.date) -> bool:
        """Return whether the text mentions this day."""
        return day in self.days

    def has_day_of_year(self, month: int, day: int) -> bool:
        """Return whether the text mentions this day of the month, in any year."""
        return (month, day) in self._parts[2]

    def has_month(self, year: int, month: int) -> bool:
        """Return whether the text mentions this month, or a day in it."""
        return (year, month) in self.months or (year, month) in self._parts[1]

    def has_year(self, year: int) -> bool:
        """Return whether the text mentions this year, or a date within it."""
        return year in self.years or year in self._parts[0]

    def update(self, other: "Said") -> None:
        """Add the dates and times found in another text."""
        self.days.update(other.days)
        self.months.update(other.months)
        self.years.update(other.years)
        self.times.update(other.times)
        self.__dict__.pop("_parts", None)

    @functools.cached_property
    def _parts(self) -> tuple[set[int], set[tuple[int, int]], set[tuple[int, int]]]:
        """The dates' years, (year, month) pairs and (month, day) pairs; cached until `update`."""
        return (
            {day.year for day in self.days} | {year for year, _ in self.months},
            {(day.year, day.month) for day in self.days},
            {(day.month, day.day) for day in self.days},
        )


@dataclass(frozen=True)
class Dated:
    """A date in a text, from `start` to `end`: a day, a month, or a day without a year."""

    text: str
    start: int
    end: int
    days: frozenset[datetime.date]
    months: frozenset[tuple[int, int]] = frozenset()  # year and month
    days_of_year: frozenset[tuple[int, int]] = frozenset()  # month and day


def absolute_dates(text: str) -> Iterator[Dated]:  # noqa: C901 - one case for each kind
    """Yield the dates in a text that include a year, each with every possible reading."""
    text = without_accented_words(text)
    taken = bytearray(len(text))

    def free(match: re.Match[str]) -> bool:
        start, end = match.span()
        inside = any(taken[start:end])
        taken[start:end] = b"\1" * (end - start)
        return not inside

    for pattern in (_YEAR_FIRST, _COMPACT):
        for match in pattern.finditer(text):
            days = frozenset(valid_days([int(match[1])], int(match[2]), int(match[3])))
            if days and free(match):
                yield Dated(match[0], *match.span(), days)
    for match in _YEAR_LAST.finditer(text):
        first, second = int(match[1]), int(match[3])
        years = list(read_years(match[4]))
        days = frozenset([*valid_days(years, first, second), *valid_days(years, second, first)])
        if days and free(match):
            yield Dated(match[0], *match.span(), days)
    for pattern in (DAY_MONTH, MONTH_DAY):
        for match in pattern.finditer(text):
            if match["year"]:
                month, years = MONTHS[match["month"].lower()], list(read_years(match["year"]))
                numbers = [int(number) for number in re.findall(r"\d+", match["days"])]
                days = frozenset(day for one in numbers for day in valid_days(years, month, one))
                if days and free(match):
                    yield Dated(match[0], *match.span(), days)
    for match in _MONTH_YEAR.finditer(text):
        if free(match):
            month = MONTHS[match["month"].lower()]
            months = frozenset((year, month) for year in read_years(match["year"]))
            yield Dated(match[0], *match.span(), frozenset(), months)
    for match in _YEAR_AND_MONTH.finditer(text):
        if 1 <= int(match[2]) <= 12 and free(match):
            yield Dated(
                match[0], *match.span(), frozenset(), frozenset([(int(match[1]), int(match[2]))])
            )


def without_accented_words(text: str) -> str:
    """Return a text with the words masked that have accents, such as "marché": no English date has.

    A part of such a word would be read as an English word otherwise.
    """
    return text if text.isascii() else _ACCENTED_WORD.sub(lambda word: ";" * len(word[0]), text)


def masked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with these spans masked by a character that no word or number contains."""
    characters = list(text)
    for start, end in spans:
        characters[start:end] = ";" * (end - start)
    return "".join(characters)


def yearless_dates(text: str) -> Iterator[Dated]:
    """Yield the dates in a text that don't include a year."""
    text = without_accented_words(text)
    for pattern in (DAY_MONTH, MONTH_DAY):
        for match in pattern.finditer(text):
            if not match["year"]:
                month = MONTHS[match["month"].lower()]
                days = frozenset((month, int(day)) for day in re.findall(r"\d+", match["days"]))
                yield Dated(match[0], *match.span(), frozenset(), days_of_year=days)


def valid_days(years: list[int], month: int, day: int) -> Iterator[datetime.date]:
    """Yield this month and day in each of the given years in which that date exists."""
    for year in years:
        try:
            yield datetime.date(year, month, day)
        except ValueError:
            continue


def read_years(text: str) -> Iterator[int]:
    """Yield the years that a written year may mean: two digits may omit 20 or 19."""
    digits = text.lstrip("'’")
    if len(digits) == 4:
        yield int(digits)
    else:
        yield 2000 + int(digits)
        yield 1900 + int(digits)
