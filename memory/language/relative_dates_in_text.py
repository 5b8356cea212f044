"""Find the dates in a text that can be resolved only relative to the day when the text was said."""

import calendar
import datetime
import re
from collections.abc import Collection, Iterator

from memory.language.dates_in_text import (
    DAY_MONTH,
    FLAGS,
    MONTH,
    MONTH_DAY,
    MONTHS,
    YEAR,
    Said,
    read_years,
    valid_days,
)
from memory.language.numbers_in_text import ORDINALS, spelled

MAX_YEARS = 50  # maximum number of mentioned years to try for a date without a year
MAX_COUNT_DIGITS = 5  # larger counts of days, weeks or years would exceed the supported date range

WEEKDAYS = {
    name.lower(): number
    for names in (calendar.day_name, calendar.day_abbr)
    for number, name in enumerate(names)
} | {"tues": 1, "weds": 2, "thur": 3, "thurs": 3}

# The weekends of languages in whose countries they begin earlier, as translations call them
WEEKEND_FROM_THURSDAY, WEEKEND_FROM_FRIDAY = "thursday_weekend", "friday_weekend"
_WEEKENDS = {WEEKEND_FROM_THURSDAY: 3, WEEKEND_FROM_FRIDAY: 4, "weekend": 5}  # by their first day

_NO_YEAR = re.compile(r"(?<![\d.,/])(\d{1,2})[/.](\d{1,2})(?![\d/]|\.\d)", FLAGS)

_MONTH_ALONE = re.compile(rf"\b{MONTH}", FLAGS)

_COUNT = r"(?P<count>\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_UNIT = r"(?P<unit>day|week|fortnight|month|year)s?"
_AHEAD = re.compile(
    rf"\b(?:in|within|after)\s+{_COUNT}\s+{_UNIT}\b|"
    rf"\b{_COUNT.replace('count', 'count2')}\s+{_UNIT.replace('unit', 'unit2')}\s+"
    r"(?:from\s+(?:now|today)|later|hence|ahead)\b",
    FLAGS,
)
_BACK = re.compile(rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|earlier|back|before)\b", FLAGS)
_NEAR = re.compile(
    r"\b(?P<which>next|this|last|coming|past|previous|current|following)\s+"
    rf"(?P<unit>week|{WEEKEND_FROM_THURSDAY}|{WEEKEND_FROM_FRIDAY}|weekend"
    r"|month|year|spring|summer|autumn|fall|winter)\b"
    r"|\b(?:at|on|over|for|during)\s+the\s+(?P<weekend>weekend)\b",
    FLAGS,
)
_SECOND_NEAR = re.compile(
    r"\b(?P<unit>week|month|year)\s+(?P<which>after\s+next|before\s+last)\b", FLAGS
)
_WEEKDAY = re.compile(
    r"\b(?:(?P<which>next|this|last|coming|past|previous|following)\s+)?"
    rf"(?P<day>{'|'.join(sorted(WEEKDAYS, key=len, reverse=True))})s?\b",
    FLAGS,
)
_OF_MONTH = re.compile(r"\bthe\s+(\d{1,2})(?:st|nd|rd|th)\b", FLAGS)
_EDGE = re.compile(
    rf"\b(?P<edge>end|start|beginning|first|last\s+day)\s+(?:day\s+)?of\s+(?:the\s+|this\s+)?"
    rf"(?:{MONTH}(?:\s+{YEAR})?|(?P<unit>month|year))",
    FLAGS,
)
_ORDINAL = "|".join(word.replace("-", r"[-\s]") for word in sorted(ORDINALS, key=len, reverse=True))
_ORDINAL_MONTH = re.compile(
    rf"\b(?P<days>{_ORDINAL})\s+(?:day\s+)?of\s+{MONTH}(?:,?\s*(?:of\s+)?{YEAR})?", FLAGS
)
_MONTH_ORDINAL = re.compile(
    rf"\b{MONTH}\s+(?:the\s+)?(?P<days>{_ORDINAL})\b(?:,?\s*{YEAR})?", FLAGS
)
_ON_ORDINAL = re.compile(rf"\bon\s+the\s+(?P<days>{_ORDINAL})\b(?!\s+[a-z])", FLAGS)
_DAY_NAME = "|".join(sorted(WEEKDAYS, key=len, reverse=True))
# Ways to refer to a month: by its name, or by how far it is from now.
_OF_A_MONTH = (
    rf"(?:{MONTH}(?:,?\s+(?:of\s+)?{YEAR})?"
    r"|(?:(?P<which>next|this|last|coming|past|previous|following)\s+|the\s+|each\s+|every\s+)?"
    r"month\b)"
)
_NTH_WEEKDAY = re.compile(
    rf"\b(?P<nth>first|second|third|fourth|fifth|last|[1-5](?:st|nd|rd|th))\s+(?P<day>{_DAY_NAME})"
    rf"\s+(?:in|of)\s+{_OF_A_MONTH}",
    FLAGS,
)
_FROM_WEEKDAY = re.compile(
    rf"\b{_COUNT}\s+(?P<unit>day|week|fortnight)s?\s+(?:from|after|on)\s+"
    rf"(?:(?P<which>next|this|coming)\s+)?(?P<day>{_DAY_NAME}|tomorrow)\b",
    FLAGS,
)
_WEEKDAY_IN = re.compile(rf"\b(?P<day>{_DAY_NAME})[\s,]+in\s+{_COUNT}\s+weeks?\b", FLAGS)
_AT_EDGE = re.compile(
    rf"\b(?P<edge>first|last)\s+(?:{_COUNT}\s+)?(?P<unit>day|week)s?\s+(?:in|of)\s+{_OF_A_MONTH}",
    FLAGS,
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
    + rf")\b(?:,?\s+(?:of\s+)?{YEAR})?",
    FLAGS,
)
_BY_PLAIN_NAME = {name.replace("'", ""): day for name, day in _HOLIDAYS.items()}
_SEASONS = ("spring", "summer", "autumn", "fall", "winter")
_DAYS_IN = {"day": 1, "week": 7, "fortnight": 14}
_DAYS_AWAY = (
    (re.compile(r"\b(?:today|tonight|now|this (?:morning|afternoon|evening))\b", FLAGS), 0),
    (re.compile(r"\btomorrow\b", FLAGS), 1),
    (re.compile(r"\b(?:yesterday|last night)\b", FLAGS), -1),
    (re.compile(r"\bday after tomorrow\b", FLAGS), 2),
    (re.compile(r"\bday before yesterday\b", FLAGS), -2),
)


def add_yearless_dates(
    text: str, today: datetime.date, moments: Said, months: Collection[tuple[int, int]] = ()
) -> None:
    """Add each date without a year, once for every year that is mentioned or close to today.

    A day without a month is one of the mentioned months, of `months`, or of those close to today.
    """
    years = [*_near(today), *sorted(moments.years)[:MAX_YEARS]]
    for pattern in (DAY_MONTH, MONTH_DAY):
        for match in pattern.finditer(text):
            if not match["year"]:
                month = MONTHS[match["month"].lower()]
                for number in re.findall(r"\d+", match["days"]):
                    moments.days.update(valid_days(years, month, int(number)))
                moments.months.update((year, month) for year in years)
    for match in _NO_YEAR.finditer(text):
        first, second = int(match[1]), int(match[2])
        moments.days.update([*valid_days(years, first, second), *valid_days(years, second, first)])
    for match in _MONTH_ALONE.finditer(text):
        month = MONTHS[match["month"].lower()]
        moments.months.update((year, month) for year in years)
    in_some_month = [int(match[1]) for match in _OF_MONTH.finditer(text)]
    in_some_month += [_ordinal(match["days"]) for match in _ON_ORDINAL.finditer(text)]
    near = [_shifted(today.replace(day=1), distance) for distance in (-1, 0, 1)]
    named = sorted({*moments.months, *months})[:MAX_YEARS]
    for day in in_some_month:
        for year, month in {*named, *((first.year, first.month) for first in near)}:
            moments.days.update(valid_days([year], month, day))


def add_dates_in_words(text: str, today: datetime.date, moments: Said) -> None:
    """Add the days that the text names by a spelled-out ordinal or a holiday."""
    near = [*_near(today), *sorted(moments.years)[:MAX_YEARS]]
    for pattern in (_ORDINAL_MONTH, _MONTH_ORDINAL):
        for match in pattern.finditer(text):
            month = MONTHS[match["month"].lower()]
            moments.days.update(valid_days(_years(match, near), month, _ordinal(match["days"])))
    for match in _HOLIDAY.finditer(text):
        name = " ".join(match["name"].lower().replace("’", "'").split())
        month, day = _BY_PLAIN_NAME[name.replace("'", "")]
        moments.days.update(valid_days(_years(match, near), month, day))


def add_relative_dates(text: str, today: datetime.date, moments: Said) -> None:  # noqa: C901 - one case for each kind
    """Add the days, months and years that the text names relative to the day when it was said."""
    for pattern, distance in _DAYS_AWAY:
        if pattern.search(text):
            moments.days.update(_away(today, distance))
    for match in _AHEAD.finditer(text):
        _add_distance(
            today, match["count"] or match["count2"], match["unit"] or match["unit2"], 1, moments
        )
    for match in _BACK.finditer(text):
        _add_distance(today, match["count"], match["unit"], -1, moments)
    far = False  # "on Tuesday next week" is further away than "on Tuesday"
    for match in _NEAR.finditer(text):
        which = match["which"] or "this"
        steps = _steps(which)
        unit = (match["unit"] or match["weekend"]).lower()
        for step in steps:
            if unit == "year":
                moments.years.add(today.year + step)
            elif unit in _SEASONS:
                # Which one it is depends on today's; a winter has days of two years.
                moments.years.update((today.year, today.year + step))
                if unit == "winter":
                    moments.years.update((today.year + step - 1, today.year + step + 1))
            elif unit == "month":
                month = _shifted(today.replace(day=1), step)
                moments.months.add((month.year, month.month))
            elif unit in _WEEKENDS:
                moments.days.update(_weekend(today, which, _WEEKENDS[unit]))
            else:
                far = True
                for day in _week(today, step):
                    moments.days.add(day)
                    moments.months.add((day.year, day.month))
    weeks = []
    for match in _SECOND_NEAR.finditer(text):
        sign = 1 if match["which"].lower().startswith("after") else -1
        if match["unit"].lower() == "week":
            weeks.append(2 * sign)
            moments.days.update(_week(today, 2 * sign))
        else:
            _add_distance(today, "2", match["unit"], sign, moments)
    for match in _WEEKDAY.finditer(text):
        for step in weeks:
            weekday = WEEKDAYS[match["day"].lower()]
            moments.days.update(_away(today, 7 * step + weekday - today.weekday()))
        which = match["which"] or ("far" if far else "")
        moments.days.update(_weekdays(today, WEEKDAYS[match["day"].lower()], which))
    for match in _EDGE.finditer(text):
        moments.days.update(_edges(match, today))
    for match in _NTH_WEEKDAY.finditer(text):
        weekday = WEEKDAYS[match["day"].lower()]
        for month in _months_named(match, today):
            moments.days.update(_nth_weekday(month, match["nth"].lower(), weekday))
    for match in _AT_EDGE.finditer(text):
        length = _count(match["count"] or "one") * (7 if match["unit"].lower() == "week" else 1)
        for month in _months_named(match, today):
            days = _days_of(month)
            first = match["edge"].lower() == "first"
            moments.days.update(days[:length] if first else days[-length:])
    for match in _WEEKDAY_IN.finditer(text):
        for day in _away(today, 7 * _count(match["count"])):
            moments.days.update(_weekdays(day, WEEKDAYS[match["day"].lower()], ""))
    for match in _FROM_WEEKDAY.finditer(text):
        distance = _count(match["count"]) * _DAYS_IN[match["unit"].lower()]
        for day in _starts(match, today):
            moments.days.update(_away(day, distance))


def _ordinal(words: str) -> int:
    return ORDINALS["-".join(words.lower().replace("-", " ").split())]


def _near(today: datetime.date) -> list[int]:
    return [today.year - 1, today.year, today.year + 1]


def _years(match: re.Match[str], near: list[int]) -> list[int]:
    return list(read_years(match["year"])) if match["year"] else near


def _count(count: str) -> int:
    """Return the value of a count written in digits or as a word; 0 if it has too many digits."""
    if count.isdigit():
        return int(count) if len(count) <= MAX_COUNT_DIGITS else 0
    return next((int(number) for quantity in spelled(count) for number in quantity.readings), 1)


def _months_named(match: re.Match[str], today: datetime.date) -> Iterator[datetime.date]:
    """Yield the first day of each month that may be meant.

    A month named without a year may be this year's, last year's or next year's.
    """
    if match["month"]:
        yield from valid_days(_years(match, _near(today)), MONTHS[match["month"].lower()], 1)
        return
    for step in _steps(match["which"]) if match["which"] else (-1, 0, 1):
        yield _shifted(today.replace(day=1), step)


def _days_of(month: datetime.date) -> list[datetime.date]:
    last = calendar.monthrange(month.year, month.month)[1]
    return [month.replace(day=day) for day in range(1, last + 1)]


def _nth_weekday(month: datetime.date, nth: str, weekday: int) -> Iterator[datetime.date]:
    days = [day for day in _days_of(month) if day.weekday() == weekday]
    if nth == "last":
        yield days[-1]
        return
    position = int(nth[0]) if nth[0].isdigit() else ORDINALS[nth]
    yield from days[position - 1 : position]


def _starts(match: re.Match[str], today: datetime.date) -> Iterator[datetime.date]:
    """Yield the upcoming days that a phrase such as "a week from Friday" may count from."""
    if match["day"].lower() == "tomorrow":
        yield from _away(today, 1)
        return
    weekday = WEEKDAYS[match["day"].lower()]
    which = match["which"] or "this"
    yield from (day for day in _weekdays(today, weekday, which) if day >= today)


def _week(today: datetime.date, step: int) -> Iterator[datetime.date]:
    """Yield the first and last days of a week, whether it begins on Monday or on Sunday."""
    monday = 7 * step - today.weekday()
    for distance in (monday - 1, monday, monday + 5, monday + 6):
        yield from _away(today, distance)


def _weekend(today: datetime.date, which: str, first: int) -> Iterator[datetime.date]:
    """Yield the days of the weekends that are meant, from the weekday `first` to Sunday.

    The last weekend is over. "The past weekend" may be today's, as may the last one where a weekend
    from Friday is over on Sunday.
    """
    if _steps(which) != (-1,):
        for weekday in range(first, 7):
            yield from _weekdays(today, weekday, which)
        return
    since = (today.weekday() - first) % 7
    if today.weekday() < first:
        begun = {since}
    else:
        may_be_this = which.lower() == "past" or first < _WEEKENDS["weekend"]
        begun = {since, since + 7} if may_be_this else {since + 7}
    for days_ago in begun:
        for distance in range(-days_ago, min(7 - first - days_ago, 1)):
            yield from _away(today, distance)


def _steps(which: str) -> tuple[int, ...]:
    which = which.lower()
    if which in ("next", "coming", "following"):
        return (1,)
    return (-1,) if which in ("last", "past", "previous") else (0,)


def _weekdays(today: datetime.date, weekday: int, which: str) -> Iterator[datetime.date]:
    """Yield the days that a weekday's name may mean.

    "Next Friday" may mean the coming Friday or the Friday after that.
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
        yield from valid_days([today.year], *((1, 1) if first else (12, 31)))
        return
    month = MONTHS[match["month"].lower()] if match["month"] else today.month
    for year in _years(match, _near(today)) if match["month"] else [today.year]:
        last = calendar.monthrange(year, month)[1]
        yield from valid_days([year], month, 1 if first else last)


def _add_distance(today: datetime.date, count: str, unit: str, sign: int, moments: Said) -> None:
    if len(count) > MAX_COUNT_DIGITS and count.isdigit():
        return
    number = sign * _count(count)
    unit = unit.lower()
    if unit in _DAYS_IN:
        moments.days.update(_away(today, number * _DAYS_IN[unit]))
        return
    months = number * (12 if unit == "year" else 1)
    if abs(months) > 12 * 500:
        return
    there = _shifted(today, months)
    moments.days.add(there)
    moments.years.add(there.year)
    moments.months.add((there.year, there.month))


def _away(today: datetime.date, distance: int) -> Iterator[datetime.date]:
    try:
        yield today + datetime.timedelta(days=distance)
    except OverflowError:
        return


def _shifted(day: datetime.date, months: int) -> datetime.date:
    """Return the same day this many months later, or the last day of that month if it is too short.

    If the result would be outside the calendar, the day is returned unchanged.
    """
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        return day
    return datetime.date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
