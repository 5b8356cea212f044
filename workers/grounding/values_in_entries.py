"""Grounding: the dates, numbers and names in a record must occur in the entries that it cites.

Values are compared by meaning, not by spelling: "1,200 €" and "twelve hundred" both ground 1200,
and "next Friday" in an entry from the right week grounds a date. A record with a number or a date
that no cited entry contains is rejected unless the field is marked as derived. A name that no cited
entry contains is only reported, since the same person may go by another name; the same applies to a
number written in words.
"""

import datetime
import json
import re
import zoneinfo
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from memory.language.dates_in_text import Said, absolute_dates, masked, yearless_dates
from memory.language.detection import language_of, languages_of
from memory.language.folding import fold
from memory.language.moments_in_text import find_moments
from memory.language.numbers_in_text import find_numbers, numerals, spelled
from memory.language.stems import Stems
from memory.language.times_in_text import find_times
from memory.language.translation import english_of, in_english
from memory.project.values import PartialDate, Record, RecordId, Ref, Struct, Value
from sandbox_image.uac.dates import OPEN
from workers.findings import Finding

# Text that may be a code, such as a booking code or a passport or flight number.
_JOINED = re.compile(r"[\w/-]++")
_FIRST = re.compile(r"(?<!\w)[^\W_]")
_LETTER = re.compile(r"[^\W\d_]")
_WITH_UNIT = re.compile(r"\d+(?:st|nd|rd|th|[^\W\d_]{0,4})", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w@.])[^\W\d_][\w'’]*(?:-[^\W\d_][\w'’]*)*")
_DIGIT = re.compile(r"\d")
_CLOCK = re.compile(r"(?<!\d)\d{1,2}:\d\d(?!\d)", re.ASCII)
_WORDS = re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DIGITS = re.compile(r"(?<=\d)[\s()./-]+(?=\d)")
# A number with at least this many digits, grouped or not, may be an identifier such as a phone or
# account number, so its digits are also compared as text.
LONG_NUMBER = 5
A_WEEK = datetime.timedelta(days=7)
# A text of at most this many words is treated as a name or label; in a longer text, the first word
# may be capitalized only because it starts a sentence.
LABEL_WORDS = 4
MIN_WORDS = 3  # in the shortest text whose letters tell its language

FIX = (
    "correct the value, cite the entry that states it, or, if it follows from the cited entries,"
    " name the field in `derived` with the reason"
)


@dataclass(frozen=True)
class Source:
    """A log entry's content: its text, typed data (if any), timestamp and speaker.

    `before` is the text of the message before it, which may say the month of "the 14th".
    """

    seq: int
    text: str
    at: datetime.datetime
    data: object = None
    speaker: str = ""
    before: str = ""

    @property
    def text_and_data(self) -> str:
        """The text and the data, joined."""
        data = "" if self.data is None else json.dumps(self.data, ensure_ascii=False)
        return "\n".join(part for part in (self.text, data) if part)

    @property
    def whole(self) -> str:
        """The text, the data and the speaker, joined."""
        return f"{self.text_and_data}\n{self.speaker}" if self.speaker else self.text_and_data


@dataclass(frozen=True)
class Claim:
    """A record's new field values, and the reasons given for fields marked as derived.

    `is_new` says whether the record itself is new.
    """

    record_id: RecordId
    sources: Sequence[int]
    fields: Mapping[str, Value]
    derived: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = True


def claims_of(
    record_id: RecordId,
    record: Record,
    before: Record | None,
    derived: Mapping[str, str],
    fields: Iterable[str],
) -> Claim:
    """Return a record's new values; `fields` are the fields that the record's class has now.

    A value isn't new if it was in a field that no longer exists: the field was renamed.
    """
    old = before.fields if before else {}
    current = set(fields)
    renamed = [value for name, value in old.items() if name not in current]
    new = {
        name: value
        for name, value in record.fields.items()
        if (name not in old or old[name] != value) and value not in renamed
    }
    return Claim(record_id, record.sources, new, derived, is_new=before is None)


def ungrounded(
    claims: Iterable[Claim], sources: Mapping[int, Source], time_zone: str
) -> Iterator[Finding]:
    """Yield a finding for each date, number and name that no cited entry contains.

    `sources` maps seq to entry; a cited entry that is missing from `sources` supports nothing.
    """
    zone = zoneinfo.ZoneInfo(time_zone)
    read: dict[int, _Ground] = {}
    for claim in claims:
        ground = _Ground(zone)
        for seq in claim.sources:
            if seq in sources:
                if seq not in read:
                    read[seq] = _Ground(zone)
                    read[seq].read(sources[seq])
                ground.update(read[seq])
        for name, value in claim.fields.items():
            for kind, text in ground.missing(value):
                derived = name in claim.derived
                if kind.blocking and derived:
                    continue
                yield _finding(claim, name, kind, text)


def is_translation(sources: Sequence[Source], text: str, zone: zoneinfo.ZoneInfo) -> bool:
    """Return whether a text in another language than the entries has its parts from them.

    All of its dates, numbers and codes must be in the entries. One of them, or a name, must be in
    what an entry says, since each entry has a date. Other names may be missing: many are written
    differently in another language.
    """
    if any(_may_share_language(text, source.text_and_data) for source in sources):
        return False
    ground, dates_alone = _Ground(zone), _Ground(zone)
    for source in sources:
        ground.read(source)
        dates_alone.read(Source(source.seq, "", source.at))
    missing = ground.missing(text)
    is_supported = len(missing) < len(dates_alone.missing(text))
    return is_supported and not any(kind.blocking for kind, _ in missing)


def _may_share_language(text: str, other: str) -> bool:
    """Return whether two texts may be in one language.

    Too few function words, as in "Das Auto kostet 12.900 Euro", count as English: then the letters
    of a sentence tell.
    """
    languages = {language_of(text), language_of(other)}
    if "en" not in languages or min(len(_WORD.findall(one)) for one in (text, other)) < MIN_WORDS:
        return len(languages) == 1
    return not {*languages_of(text)}.isdisjoint(languages_of(other))


def supports(source: Source, value: Value, zone: zoneinfo.ZoneInfo) -> bool:
    """Return whether an entry contains every date, number and name in a value."""
    ground = _Ground(zone)
    ground.read(source)
    return not ground.missing(value)


@dataclass(frozen=True)
class _Kind:
    code: str
    noun: str
    blocking: bool = True


NUMBER = _Kind("ungrounded_number", "the number")
DATE = _Kind("ungrounded_date", "the date")
TIME = _Kind("ungrounded_time", "the time")
CODE = _Kind("ungrounded_code", "the code")
NAME = _Kind("ungrounded_name", "the name", blocking=False)
SPELLED = _Kind("ungrounded_word", "the number", blocking=False)


def _finding(claim: Claim, name: str, kind: _Kind, text: str) -> Finding:
    cited = ", ".join(map(str, claim.sources)) or "none"
    return Finding(
        code=kind.code,
        message=f"{kind.noun} {text} in field {name} of {'.'.join(claim.record_id)} is not in"
        f" any of the entries that the record cites ({cited})",
        fix=FIX,
        record=claim.record_id,
        field=name,
        entry=max(claim.sources, default=None),
        blocking=kind.blocking,
    )


class _Ground:
    """The combined content of several entries."""

    def __init__(self, zone: zoneinfo.ZoneInfo) -> None:
        self._zone = zone
        self._parts: list[tuple[str, datetime.datetime]] = []  # each entry's text and local time
        self._is_translated = False
        self._said = Said()
        self._numbers: set[Decimal] = set()
        self._texts: list[str] = []  # the texts, as returned by `plain`
        self._digits: list[str] = []
        self._squeezed: list[str] = []
        self._words: set[str] = set()
        self._words_in_order: list[str] = []
        self._stems = Stems()

    def read(self, source: Source) -> None:
        text = source.whole
        at = source.at.astimezone(self._zone)
        self._parts.append((text, at))
        months = find_moments(english_of(source.before), at).months if source.before else ()
        self._said.update(find_moments(english_of(text), at, months))
        self._numbers |= find_numbers(text)
        self._texts.append(plain(text))
        self._digits.append(_DIGITS.sub("", text))
        self._squeezed.append(_squeezed(text))
        words = set(words_of(text))
        self._words |= words
        self._stems.add(text, words)

    def update(self, other: "_Ground") -> None:
        self._parts += other._parts
        self._said.update(other._said)
        self._numbers |= other._numbers
        self._texts += other._texts
        self._digits += other._digits
        self._squeezed += other._squeezed
        self._words |= other._words
        self._stems.update(other._stems)

    def missing(self, value: Value) -> list[tuple[_Kind, str]]:
        """Return the parts of a value that no entry contains.

        The entries are read in other languages than English only if something is missing in it.
        """
        missing = list(self._missing(value))
        if self._is_translated or not any(kind.blocking for kind, _ in missing):
            return missing
        self._is_translated = True
        for text, at in self._parts:
            values, numbers = _read_in_english(text, at)
            self._said.update(values)
            self._numbers |= numbers
        return list(self._missing(value))

    def _missing(self, value: Value) -> Iterator[tuple[_Kind, str]]:  # noqa: C901 - one case for each kind
        match value:
            case None | bool() | Ref():
                return
            case int() | float() | Decimal():
                if not self._has_number(Decimal(str(value))):
                    yield NUMBER, str(value)
            case datetime.datetime():
                yield from self._missing_moment(value)
            case datetime.date():
                if not self._said.has_day(value):
                    yield DATE, value.isoformat()
            case datetime.time():
                if (value.hour, value.minute) not in self._said.times:
                    yield TIME, value.isoformat()
            case PartialDate(text):
                if not self._has_partial(value):
                    yield DATE, text
            case str():
                yield from self._missing_in_any_language(value)
            case list():
                for item in value:
                    yield from self._missing(item)
            case Struct(fields=fields):
                for item in fields.values():
                    yield from self._missing(item)

    def _has_number(self, number: Decimal) -> bool:
        if not number.is_finite():
            return True
        # Unlike abs(), Decimal.copy_abs() neither rounds nor overflows.
        size = number.copy_abs()
        digits = str(size)
        return (
            size in self._numbers
            or size in self._said.years
            or (len(digits) >= LONG_NUMBER and self._has_digits(digits))
        )

    def _has_digits(self, digits: str) -> bool:
        return any(digits in text for text in self._digits)

    def _has_partial(self, date: PartialDate) -> bool:
        """Return whether the entries mention a partial date; see `_has_interval`."""
        ends = [end.removesuffix("~") for end in date.text.split("/")]
        if len(ends) == 1:
            return self._has_stated(ends[0])
        stated = [end for end in ends if end != OPEN]
        return self._has_interval([PartialDate(end) for end in stated])

    def _has_interval(self, ends: Sequence[PartialDate]) -> bool:
        """Return whether the entries mention the ends of an interval, or what contains it.

        "The weekend of 15 July" is found by one day of the week, and "early May" by the month; so
        an interval that is shorter than a week has to have an end that is mentioned.
        """
        (first, _), (_, last) = ends[0].bounds, ends[-1].bounds
        is_short = len(ends) > 1 and last - first < A_WEEK
        stated = [self._has_stated(end.text) for end in ends]
        within = all(self._has_around(day) for end in ends for day in end.bounds)
        return all(stated) or (any(stated) if is_short else within)

    def _has_around(self, day: datetime.date) -> bool:
        """Return whether the entries mention a day's month or, with no date in it, its year."""
        dated = {year for year, _ in self._said.months} | {one.year for one in self._said.days}
        return (day.year, day.month) in self._said.months or (day.year in self._said.years - dated)

    def _has_stated(self, text: str) -> bool:
        numbers = [int(part) for part in text.split("-")]
        if len(numbers) == 1:
            return self._said.has_year(numbers[0])
        if len(numbers) == 2:
            return self._said.has_month(numbers[0], numbers[1])
        return self._said.has_day(datetime.date(numbers[0], numbers[1], numbers[2]))

    def _missing_moment(self, moment: datetime.datetime) -> Iterator[tuple[_Kind, str]]:
        """Yield a datetime's date or its time of day if no entry contains it.

        An entry may give the date and time in the user's time zone or in the datetime's own.
        """
        local = moment.astimezone(self._zone) if moment.tzinfo else moment
        readings = [reading for reading in (local, moment) if self._said.has_day(reading.date())]
        if not readings:
            yield DATE, moment.isoformat()
        elif not any(
            (reading.hour, reading.minute) in {*self._said.times, (0, 0)} for reading in readings
        ):
            yield TIME, moment.isoformat()

    def _missing_in_any_language(self, text: str) -> Iterator[tuple[_Kind, str]]:
        missing = list(self._missing_in_text(text))
        names = [(kind, part) for kind, part in missing if not kind.blocking]
        if self._is_translated and len(names) < len(missing):
            for restated in in_english(text):
                if not any(kind.blocking for kind, _ in self._missing_in_text(restated)):
                    missing = names
        yield from missing

    def _missing_in_text(self, text: str) -> Iterator[tuple[_Kind, str]]:
        if any(plain(text) in original for original in self._texts):
            return
        read: list[tuple[int, int]] = []
        for dated in absolute_dates(text):
            found = any(map(self._said.has_day, dated.days)) or any(
                self._said.has_month(*month) for month in dated.months
            )
            if not found:
                yield DATE, dated.text
            read.append((dated.start, dated.end))
        for dated in yearless_dates(masked(text, read)):
            if not any(self._said.has_day_of_year(*day) for day in dated.days_of_year):
                yield DATE, dated.text
            read.append((dated.start, dated.end))
        for start, code in _codes(masked(text, read)):
            if _WITH_UNIT.fullmatch(code):
                continue
            read.append((start, start + len(code)))
            if not any(_squeezed(code) in original for original in self._squeezed):
                yield CODE, code
        times = {f"{hour:02}:{minute:02}" for hour, minute in self._said.times}
        for match in _CLOCK.finditer(masked(text, read)):
            read.append(match.span())
            if match[0].zfill(5) not in times and not find_times(match[0]) & self._said.times:
                yield TIME, match[0]
        rest = masked(text, read)
        yield from self._missing_numbers(rest)
        yield from self._missing_names(rest)

    def _missing_numbers(self, text: str) -> Iterator[tuple[_Kind, str]]:
        long = _DIGITS.sub("", text)
        if len(re.sub(r"\D", "", long)) >= LONG_NUMBER and all(
            self._has_digits(run) for run in re.findall(r"\d+", long)
        ):
            return
        for quantity in numerals(text):
            if not any(map(self._has_number, quantity.readings)):
                yield NUMBER, quantity.text
        for quantity in spelled(text):
            if not any(map(self._has_number, quantity.readings)) and quantity.readings != {1}:
                yield SPELLED, quantity.text

    def _missing_names(self, text: str) -> Iterator[tuple[_Kind, str]]:
        is_label = len(text.split()) <= LABEL_WORDS
        for match in _NAME.finditer(text):
            before = text[max(0, match.start() - 8) : match.start()].rstrip()
            begins = not before or before[-1] in ".!?:"
            if not match[0][0].isupper() or (begins and not is_label) or _DIGIT.search(match[0]):
                continue
            if not all(map(self._has_word, words_of(match[0]))):
                yield NAME, match[0]

    def _in_order(self) -> list[str]:
        if len(self._words_in_order) != len(self._words):
            self._words_in_order = sorted(self._words)
        return self._words_in_order

    def _has_word(self, word: str) -> bool:
        """Return whether the entries contain the word.

        A long word may occur with a different ending: "Italian" for "Italy". In other languages
        than English, any word may.
        """
        if len(word) == 1 or word in self._words or f"{word}s" in self._words:
            return True
        if self._stems.have(word):
            return True
        if not word.isascii() and any(word in text for text in self._squeezed):
            return True  # some scripts have no spaces between words
        stem = word[: max(4, len(word) - 3)]
        return len(word) > 5 and any_starts_with(self._in_order(), stem)


@lru_cache(maxsize=1 << 10)
def _read_in_english(text: str, at: datetime.datetime) -> tuple[Said, frozenset[Decimal]]:
    """Return the dates, times and numbers that a text in other languages than English mentions."""
    values, numbers = Said(), set[Decimal]()
    for restated in in_english(text):
        values.update(find_moments(restated, at))
        numbers |= find_numbers(restated)
    return values, frozenset(numbers)


def any_starts_with(in_order: Sequence[str], beginning: str) -> bool:
    """Return whether any of the words, which must be sorted, begins with `beginning`."""
    index = bisect_left(in_order, beginning)
    return index < len(in_order) and in_order[index].startswith(beginning)


def _codes(text: str) -> Iterator[tuple[int, str]]:
    """Yield each word with both letters and digits, such as a booking code, with its position."""
    for joined in _JOINED.finditer(text):
        first = _FIRST.search(joined[0])
        if first is not None:
            code = joined[0][first.start() :].rstrip("_/-")
            if _DIGIT.search(code) and _LETTER.search(code):
                yield joined.start() + first.start(), code


def plain(text: str) -> str:
    """Return the folded text with single spaces."""
    return " ".join(fold(text).split())


def words_of(text: str) -> list[str]:
    """Return a text's words, in lower case and without accents."""
    return _WORDS.findall(plain(text))


def _squeezed(text: str) -> str:
    return "".join(words_of(text))
