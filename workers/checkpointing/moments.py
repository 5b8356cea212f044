"""The dates and times in a text, relative to the moment at which it was said.

Numeric dates are read in every order that the calendar allows. Relative dates ("tomorrow", "in two
weeks", "last Friday") and dates without a year are resolved against that moment, into all the days
that a person may have meant. Words are read in English; for a date in another language, such as "2.
Mai 2026", its day and year count in any month.
"""

import calendar
import datetime
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from workers.checkpointing.quantities import ORDINALS, spelled

MAX_YEARS = 50  # that dates without a year can mean
MAX_COUNT_DIGITS = 5  # of a count of days, weeks or years: larger ones lie outside the calendar

_MONTHS = {
    name.lower(): number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names)
    if name
} | {"sept": 9}
_WEEKDAYS = {
    name.lower(): number
    for names in (calendar.day_name, calendar.day_abbr)
    for number, name in enumerate(names)
} | {"tues": 1, "weds": 2, "thur": 3, "thurs": 3}

_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?(?![\d:])"
_AND = r"\s*(?:,|-|–|—|/|&|to|and|or|until|till|through)\s*(?:the\s+)?"
_DAYS = rf"(?P<days>{_DAY}(?:{_AND}{_DAY}){{0,7}})"
_YEAR = r"(?P<year>(?:1[5-9]|2[01])\d\d\b|['’]\d\d\b)"
_FLAGS = re.IGNORECASE | re.ASCII

_YEAR_FIRST = re.compile(
    r"(?<!\d)(\d{4})\s*[-/.年년]\s*(\d{1,2})\s*[-/.月월]\s*(\d{1,2})(?!\d)", re.IGNORECASE
)
_COMPACT = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)", _FLAGS)
_YEAR_LAST = re.compile(r"(?<![\d.,])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?!\d)", _FLAGS)
_NO_YEAR = re.compile(r"(?<![\d.,/])(\d{1,2})[/.](\d{1,2})(?![\d/]|\.\d)", _FLAGS)
_YEAR_AND_MONTH = re.compile(r"(?<![\d-])(\d{4})-(\d{2})(?![\d-])", _FLAGS)
_DAY_MONTH = re.compile(rf"\b{_DAYS}\.?\s+(?:of\s+)?{_MONTH}(?:,?\s*(?:of\s+)?{_YEAR})?", _FLAGS)
_MONTH_DAY = re.compile(rf"\b{_MONTH}\s+(?:the\s+)?{_DAYS}(?:,?\s*{_YEAR})?", _FLAGS)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},?\s*(?:of\s+)?{_YEAR}", _FLAGS)
_MONTH_ALONE = re.compile(rf"\b{_MONTH}", _FLAGS)
_FOREIGN = re.compile(
    r"\b(\d{1,2})\.?\s+(?:de\s+)?([^\W\d_]{3,})\.?\s+(?:de\s+|del\s+)?((?:19|20|21)\d\d)\b",
    re.IGNORECASE,
)
_ANY_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|2[01])\d\d(?!\d)|(?<=['’])\d\d(?!\d)", _FLAGS)

_COUNT = r"(?P<count>\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_UNIT = r"(?P<unit>day|week|fortnight|month|year)s?"
_AHEAD = re.compile(
    rf"\b(?:in|within|after)\s+{_COUNT}\s+{_UNIT}\b|"
    rf"\b{_COUNT.replace('count', 'count2')}\s+{_UNIT.replace('unit', 'unit2')}\s+"
    r"(?:from\s+(?:now|today)|later|hence|ahead)\b",
    _FLAGS,
)
_BACK = re.compile(rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|earlier|back|before)\b", _FLAGS)
_NEAR = re.compile(
    r"\b(?P<which>next|this|last|coming|past|previous|current|following)\s+"
    r"(?P<unit>week|weekend|month|year)\b",
    _FLAGS,
)
_WEEKDAY = re.compile(
    r"\b(?:(?P<which>next|this|last|coming|past|previous|following)\s+)?"
    rf"(?P<day>{'|'.join(sorted(_WEEKDAYS, key=len, reverse=True))})s?\b",
    _FLAGS,
)
_OF_MONTH = re.compile(r"\bthe\s+(\d{1,2})(?:st|nd|rd|th)\b", _FLAGS)
_EDGE = re.compile(
    rf"\b(?P<edge>end|start|beginning|first|last\s+day)\s+(?:day\s+)?of\s+(?:the\s+|this\s+)?"
    rf"(?:{_MONTH}(?:\s+{_YEAR})?|(?P<unit>month|year))",
    _FLAGS,
)
_ORDINAL = "|".join(word.replace("-", r"[-\s]") for word in sorted(ORDINALS, key=len, reverse=True))
_ORDINAL_MONTH = re.compile(
    rf"\b(?P<days>{_ORDINAL})\s+(?:day\s+)?of\s+{_MONTH}(?:,?\s*(?:of\s+)?{_YEAR})?", _FLAGS
)
_MONTH_ORDINAL = re.compile(
    rf"\b{_MONTH}\s+(?:the\s+)?(?P<days>{_ORDINAL})\b(?:,?\s*{_YEAR})?", _FLAGS
)
_ON_ORDINAL = re.compile(rf"\bon\s+the\s+(?P<days>{_ORDINAL})\b(?!\s+[a-z])", _FLAGS)
_DAY_NAME = "|".join(sorted(_WEEKDAYS, key=len, reverse=True))
# Ways to name a month: by its name, or by its distance from now.
_OF_A_MONTH = (
    rf"(?:{_MONTH}(?:,?\s+(?:of\s+)?{_YEAR})?"
    r"|(?:(?P<which>next|this|last|coming|past|previous|following)\s+|the\s+|each\s+|every\s+)?"
    r"month\b)"
)
_NTH_WEEKDAY = re.compile(
    rf"\b(?P<nth>first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))\s+(?P<day>{_DAY_NAME})"
    rf"\s+(?:in|of)\s+{_OF_A_MONTH}",
    _FLAGS,
)
_FROM_WEEKDAY = re.compile(
    rf"\b{_COUNT}\s+(?P<unit>day|week|fortnight)s?\s+(?:from|after|on)\s+"
    rf"(?:(?P<which>next|this|coming)\s+)?(?P<day>{_DAY_NAME}|tomorrow)\b",
    _FLAGS,
)
_AT_EDGE = re.compile(
    rf"\b(?P<edge>first|last)\s+(?:{_COUNT}\s+)?(?P<unit>day|week)s?\s+(?:in|of)\s+{_OF_A_MONTH}",
    _FLAGS,
)
_HOLIDAYS = {
    "christmas eve": (12, 24),
    "christmas day": (12, 25),
    "christmas": (12, 25),
    "boxing day": (12, 26),
    "new year's eve": (12, 31),
    "new year's day": (1, 1),
    "new year's": (1, 1),
    "new year": (1, 1),
    "valentine's day": (2, 14),
    "halloween": (10, 31),
}
_HOLIDAY = re.compile(
    r"\b(?P<name>"
    + "|".join(
        name.replace("'", "['’]?").replace(" ", r"\s+")
        for name in sorted(_HOLIDAYS, key=len, reverse=True)
    )
    + rf")\b(?:,?\s+(?:of\s+)?{_YEAR})?",
    _FLAGS,
)
_BY_PLAIN_NAME = {name.replace("'", ""): day for name, day in _HOLIDAYS.items()}
_DAYS_AWAY = (
    (re.compile(r"\b(?:today|tonight|now|this (?:morning|afternoon|evening))\b", _FLAGS), 0),
    (re.compile(r"\btomorrow\b", _FLAGS), 1),
    (re.compile(r"\b(?:yesterday|last night)\b", _FLAGS), -1),
    (re.compile(r"\bday after tomorrow\b", _FLAGS), 2),
    (re.compile(r"\bday before yesterday\b", _FLAGS), -2),
)

_CLOCK = re.compile(
    r"(?<![\d.,])(\d{1,2})[:.h](\d{2})(?::(\d{2}))?(?![\d])\s*(am|pm|a\.m|p\.m)?", _FLAGS
)
_HOUR = re.compile(r"(?<![\d.,:])(\d{1,2})\s*(am|pm|a\.m|p\.m|o['’]clock|uhr|h)\b", _FLAGS)
_AT = re.compile(
    r"\b(?:at|by|from|until|till|around)\s+(\d{1,2})(?![\d:.,/-]|\s*(?:[ap]m|[ap]\.m)\b)", _FLAGS
)
_AT_WORD = re.compile(r"\b(?:at|by|from|until|till|around)\s+([a-z]+)\b", _FLAGS)
_PAST = re.compile(
    r"\b(half|quarter|\d{1,2})\s+(past|to|after|before)\s+([a-z]+|\d{1,2})\b", _FLAGS
)


@dataclass(frozen=True)
class Said:
    """Dates and times that a text mentions.

    A date without a year is resolved into `days`; `any_month` has year and day of dates whose
    month could not be read.
    """

    days: set[datetime.date] = field(default_factory=set)
    months: set[tuple[int, int]] = field(default_factory=set)
    years: set[int] = field(default_factory=set)
    any_month: set[tuple[int, int]] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)

    def has_day(self, day: datetime.date) -> bool:
        """Return whether the text mentions this day."""
        return day in self.days or (day.year, day.day) in self.any_month

    def has_day_of_year(self, month: int, day: int) -> bool:
        """Return whether the text mentions this day, of any year."""
        return (month, day) in self._parts[2]

    def has_month(self, year: int, month: int) -> bool:
        """Return whether the text mentions this month, or a day in it."""
        return (year, month) in self.months or (year, month) in self._parts[1]

    def has_year(self, year: int) -> bool:
        """Return whether the text mentions this year, or a date within it."""
        return year in self.years or year in self._parts[0]

    def update(self, other: "Said") -> None:
        """Add the dates and times of another text."""
        self.days.update(other.days)
        self.months.update(other.months)
        self.years.update(other.years)
        self.any_month.update(other.any_month)
        self.times.update(other.times)
        self.__dict__.pop("_parts", None)

    @functools.cached_property
    def _parts(self) -> tuple[set[int], set[tuple[int, int]], set[tuple[int, int]]]:
        """The years, months, and days of a year; computed only once all texts were added."""
        return (
            {day.year for day in self.days} | {year for year, _ in self.months},
            {(day.year, day.month) for day in self.days},
            {(day.month, day.day) for day in self.days},
        )


@dataclass(frozen=True)
class Dated:
    """A date within a text, from `start` to `end`: a day, a month, or a day of some year."""

    text: str
    start: int
    end: int
    days: frozenset[datetime.date]
    months: frozenset[tuple[int, int]] = frozenset()  # year and month
    days_of_year: frozenset[tuple[int, int]] = frozenset()  # month and day


def moments_said(text: str, at: datetime.datetime) -> Said:
    """Return the dates and times of a text said at a moment, in the speaker's time zone."""
    said = Said()
    today = at.date()
    said.days.add(today)
    said.years.add(today.year)
    said.times.add((at.hour, at.minute))
    said.years.update(year for match in _ANY_YEAR.finditer(text) for year in _year(match[0]))
    dated = list(absolute_dates(text))
    for found in dated:
        said.days.update(found.days)
        said.months.update(found.months)
    rest = masked(text, [(found.start, found.end) for found in dated])
    _without_year(rest, today, said)
    _in_words(text, today, said)
    _relative(text, today, said)
    for match in _FOREIGN.finditer(text):
        if match[2].lower() not in _MONTHS:
            said.any_month.add((int(match[3]), int(match[1])))
    said.times.update(times_said(text))
    return said


def absolute_dates(text: str) -> Iterator[Dated]:
    """Yield the dates with a year in a text, each with all its readings."""
    taken = bytearray(len(text))

    def free(match: re.Match[str]) -> bool:
        start, end = match.span()
        inside = any(taken[start:end])
        taken[start:end] = b"\1" * (end - start)
        return not inside

    for pattern in (_YEAR_FIRST, _COMPACT):
        for match in pattern.finditer(text):
            days = frozenset(_days([int(match[1])], int(match[2]), int(match[3])))
            if days and free(match):
                yield Dated(match[0], *match.span(), days)
    for match in _YEAR_LAST.finditer(text):
        first, second = int(match[1]), int(match[3])
        years = list(_year(match[4]))
        days = frozenset([*_days(years, first, second), *_days(years, second, first)])
        if days and free(match):
            yield Dated(match[0], *match.span(), days)
    for pattern in (_DAY_MONTH, _MONTH_DAY):
        for match in pattern.finditer(text):
            if match["year"]:
                month, years = _MONTHS[match["month"].lower()], list(_year(match["year"]))
                numbers = [int(number) for number in re.findall(r"\d+", match["days"])]
                days = frozenset(day for one in numbers for day in _days(years, month, one))
                if days and free(match):
                    yield Dated(match[0], *match.span(), days)
    for match in _MONTH_YEAR.finditer(text):
        if free(match):
            month = _MONTHS[match["month"].lower()]
            months = frozenset((year, month) for year in _year(match["year"]))
            yield Dated(match[0], *match.span(), frozenset(), months)
    for match in _YEAR_AND_MONTH.finditer(text):
        if 1 <= int(match[2]) <= 12 and free(match):
            yield Dated(
                match[0], *match.span(), frozenset(), frozenset([(int(match[1]), int(match[2]))])
            )


def masked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with the parts replaced by a character of no word or number."""
    characters = list(text)
    for start, end in spans:
        characters[start:end] = ";" * (end - start)
    return "".join(characters)


def yearless_dates(text: str) -> Iterator[Dated]:
    """Yield the dates without a year in a text."""
    for pattern in (_DAY_MONTH, _MONTH_DAY):
        for match in pattern.finditer(text):
            if not match["year"]:
                month = _MONTHS[match["month"].lower()]
                days = frozenset((month, int(day)) for day in re.findall(r"\d+", match["days"]))
                yield Dated(match[0], *match.span(), frozenset(), days_of_year=days)


def times_said(text: str) -> set[tuple[int, int]]:
    """Return hour and minute of the times of day in a text, in all their readings."""
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
    if re.search(r"\b(?:noon|midday)\b", text, _FLAGS):
        times.add((12, 0))
    if re.search(r"\bmidnight\b", text, _FLAGS):
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


def _without_year(text: str, today: datetime.date, said: Said) -> None:
    """Yield dates of some year: one that the text mentions, or one close to the text's day."""
    years = [today.year - 1, today.year, today.year + 1, *sorted(said.years)[:MAX_YEARS]]
    for pattern in (_DAY_MONTH, _MONTH_DAY):
        for match in pattern.finditer(text):
            if not match["year"]:
                month = _MONTHS[match["month"].lower()]
                for number in re.findall(r"\d+", match["days"]):
                    said.days.update(_days(years, month, int(number)))
                said.months.update((year, month) for year in years)
    for match in _NO_YEAR.finditer(text):
        first, second = int(match[1]), int(match[2])
        said.days.update([*_days(years, first, second), *_days(years, second, first)])
    for match in _MONTH_ALONE.finditer(text):
        month = _MONTHS[match["month"].lower()]
        said.months.update((year, month) for year in years)
    in_some_month = [int(match[1]) for match in _OF_MONTH.finditer(text)]
    in_some_month += [_ordinal(match["days"]) for match in _ON_ORDINAL.finditer(text)]
    for day in in_some_month:
        for distance in (-1, 0, 1):
            month_of = _shifted(today.replace(day=1), distance)
            said.days.update(_days([month_of.year], month_of.month, day))


def _in_words(text: str, today: datetime.date, said: Said) -> None:
    """Yield days that are named by ordinals in words, or by a holiday."""
    near = [today.year - 1, today.year, today.year + 1, *sorted(said.years)[:MAX_YEARS]]
    for pattern in (_ORDINAL_MONTH, _MONTH_ORDINAL):
        for match in pattern.finditer(text):
            month = _MONTHS[match["month"].lower()]
            said.days.update(_days(_years(match, near), month, _ordinal(match["days"])))
    for match in _HOLIDAY.finditer(text):
        name = " ".join(match["name"].lower().replace("’", "'").split())
        month, day = _BY_PLAIN_NAME[name.replace("'", "")]
        said.days.update(_days(_years(match, near), month, day))


def _relative(text: str, today: datetime.date, said: Said) -> None:
    for pattern, distance in _DAYS_AWAY:
        if pattern.search(text):
            said.days.update(_away(today, distance))
    for match in _AHEAD.finditer(text):
        _add_distance(
            today, match["count"] or match["count2"], match["unit"] or match["unit2"], 1, said
        )
    for match in _BACK.finditer(text):
        _add_distance(today, match["count"], match["unit"], -1, said)
    far = False  # "on Tuesday next week" is further away than "on Tuesday"
    for match in _NEAR.finditer(text):
        steps = _steps(match["which"])
        unit = match["unit"].lower()
        for step in steps:
            if unit == "year":
                said.years.add(today.year + step)
            elif unit == "month":
                month = _shifted(today.replace(day=1), step)
                said.months.add((month.year, month.month))
            elif unit == "weekend":
                for weekday in (5, 6):
                    said.days.update(_weekdays(today, weekday, match["which"]))
            else:
                far = True
                for day in _week(today, step):
                    said.days.add(day)
                    said.months.add((day.year, day.month))
    for match in _WEEKDAY.finditer(text):
        which = match["which"] or ("far" if far else "")
        said.days.update(_weekdays(today, _WEEKDAYS[match["day"].lower()], which))
    for match in _EDGE.finditer(text):
        said.days.update(_edges(match, today))
    for match in _NTH_WEEKDAY.finditer(text):
        weekday = _WEEKDAYS[match["day"].lower()]
        for month in _months_named(match, today):
            said.days.update(_nth_weekday(month, match["nth"].lower(), weekday))
    for match in _AT_EDGE.finditer(text):
        length = _count(match["count"] or "one") * (7 if match["unit"].lower() == "week" else 1)
        for month in _months_named(match, today):
            days = _days_of(month)
            first = match["edge"].lower() == "first"
            said.days.update(days[:length] if first else days[-length:])
    for match in _FROM_WEEKDAY.finditer(text):
        size = {"day": 1, "week": 7, "fortnight": 14}[match["unit"].lower()]
        for day in _starts(match, today):
            said.days.update(_away(day, _count(match["count"]) * size))


def _ordinal(words: str) -> int:
    return ORDINALS["-".join(words.lower().replace("-", " ").split())]


def _years(match: re.Match[str], near: list[int]) -> list[int]:
    return list(_year(match["year"])) if match["year"] else near


def _count(count: str) -> int:
    """Return a count, given in digits or as a word; 0 if it has too many digits."""
    if count.isdigit():
        return int(count) if len(count) <= MAX_COUNT_DIGITS else 0
    return next((int(number) for found in spelled(count) for number in found.readings), 1)


def _months_named(match: re.Match[str], today: datetime.date) -> Iterator[datetime.date]:
    """Return the first days of the months that may be meant.

    Without a year these are the months of this year and of those beside it.
    """
    if match["month"]:
        near = [today.year - 1, today.year, today.year + 1]
        yield from _days(_years(match, near), _MONTHS[match["month"].lower()], 1)
        return
    for step in _steps(match["which"]) if match["which"] else (-1, 0, 1):
        yield _shifted(today.replace(day=1), step)


def _days_of(month: datetime.date) -> list[datetime.date]:
    last = calendar.monthrange(month.year, month.month)[1]
    return [month.replace(day=day) for day in range(1, last + 1)]


def _nth_weekday(month: datetime.date, nth: str, weekday: int) -> Iterator[datetime.date]:
    found = [day for day in _days_of(month) if day.weekday() == weekday]
    if nth == "last":
        yield found[-1]
        return
    place = int(nth[0]) if nth[0].isdigit() else ORDINALS[nth]
    yield from found[place - 1 : place]


def _starts(match: re.Match[str], today: datetime.date) -> Iterator[datetime.date]:
    """Return the coming days from which "a week from Friday" counts."""
    if match["day"].lower() == "tomorrow":
        yield from _away(today, 1)
        return
    weekday = _WEEKDAYS[match["day"].lower()]
    which = match["which"] or "this"
    yield from (day for day in _weekdays(today, weekday, which) if day >= today)


def _week(today: datetime.date, step: int) -> Iterator[datetime.date]:
    """Return first and last day of a week, from Monday to Sunday or from Sunday to Saturday."""
    monday = 7 * step - today.weekday()
    for distance in (monday - 1, monday, monday + 5, monday + 6):
        yield from _away(today, distance)


def _steps(which: str) -> tuple[int, ...]:
    which = which.lower()
    if which in ("next", "coming", "following"):
        return (1,)
    return (-1,) if which in ("last", "past", "previous") else (0,)


def _weekdays(today: datetime.date, weekday: int, which: str) -> Iterator[datetime.date]:
    """Return the days that a weekday's name may mean.

    "Next" is the coming one, or the one after it.
    """
    first, last = {
        **dict.fromkeys(("next", "coming", "following"), (1, 14)),
        **dict.fromkeys(("last", "past", "previous"), (-14, -1)),
        "this": (-6, 7),
        "far": (-14, 14),
    }.get(which.lower(), (-7, 7))
    for distance in range(first, last + 1):
        for day in _away(today, distance):
            if day.weekday() == weekday:
                yield day


def _edges(match: re.Match[str], today: datetime.date) -> Iterator[datetime.date]:
    first = match["edge"].lower() in ("start", "beginning", "first")
    if match["unit"] and match["unit"].lower() == "year":
        yield from _days([today.year], *((1, 1) if first else (12, 31)))
        return
    month = _MONTHS[match["month"].lower()] if match["month"] else today.month
    years = (
        list(_year(match["year"]))
        if match["year"]
        else [today.year - 1, today.year, today.year + 1]
    )
    for year in years if match["month"] else [today.year]:
        last = calendar.monthrange(year, month)[1]
        yield from _days([year], month, 1 if first else last)


def _add_distance(today: datetime.date, count: str, unit: str, sign: int, said: Said) -> None:
    if len(count) > MAX_COUNT_DIGITS and count.isdigit():
        return
    number = sign * _count(count)
    unit = unit.lower()
    if unit in ("day", "week", "fortnight"):
        said.days.update(_away(today, number * {"day": 1, "week": 7, "fortnight": 14}[unit]))
        return
    months = number * (12 if unit == "year" else 1)
    if abs(months) > 12 * 500:
        return
    there = _shifted(today, months)
    said.days.add(there)
    said.years.add(there.year)
    if unit == "month":
        said.months.add((there.year, there.month))


def _away(today: datetime.date, distance: int) -> Iterator[datetime.date]:
    try:
        yield today + datetime.timedelta(days=distance)
    except OverflowError:
        return


def _shifted(day: datetime.date, months: int) -> datetime.date:
    """Return the same day of another month, or that month's last day.

    A day outside the calendar is returned as it is.
    """
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        return day
    return datetime.date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _days(years: list[int], month: int, day: int) -> Iterator[datetime.date]:
    for year in years:
        try:
            yield datetime.date(year, month, day)
        except ValueError:
            continue


def _year(text: str) -> Iterator[int]:
    """Return the years that a text may mean: two digits mean this century or the last."""
    digits = text.lstrip("'’")
    if len(digits) == 4:
        yield int(digits)
    else:
        yield 2000 + int(digits)
        yield 1900 + int(digits)
