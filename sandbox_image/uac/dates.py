"""Dates that are not known to the day: a year or a month, about a date, or between two dates."""

import calendar
import datetime
import re
from collections.abc import Callable
from typing import Literal

# A date as far as it is known; `~` means about. This is a subset of ISO 8601-2 (EDTF).
_STATED = r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?~?"
# A partial date: one of these, or an interval of which one end may be open.
PARTIAL_DATE = rf"{_STATED}(?:/(?:{_STATED}|\.\.))?|\.\./{_STATED}"
_ENDS = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?(~)?")
OPEN = ".."
# How far the day may be from an approximate date: this many years from a year, months from a
# month, or days from a day.
ABOUT_YEARS, ABOUT_MONTHS, ABOUT_DAYS = 2, 1, 3


class PartialDate:
    """A day that is known only approximately.

    "2021" is a day in that year, "2021-11" in that month, "2021-11-05" that day itself. "1995~" is
    about that year (month, day): up to 2 years (1 month, 3 days) before or after it.
    "2023-07-15/2023-07-16" is one of the days from the first to the second; "2019~/.." is about
    2019 or later, "../2019" in 2019 or before.

    It stands for one unknown day between `earliest` and `latest`, inclusive; these are date.min and
    date.max where an end is open. A comparison with a date or another partial date is true only if
    it is certain to hold: PartialDate("2021") < date(2022, 1, 1) is true, while both `<` and `>=`
    are false between PartialDate("2021") and date(2021, 6, 1); `relative_to` says "maybe" then.
    To sort partial dates, use `earliest` as the key. Two partial dates are equal if their texts are
    equal; a partial date never equals an object of another type. `year`, `month` and `day` are
    those that are stated, of an interval its first end's, and None unless the ends share them.
    Raises ValueError if `text` has none of these forms or is not a calendar date.
    """

    __slots__ = ("_text", "about", "day", "earliest", "latest", "month", "year")

    _text: str
    year: int
    month: int | None
    day: int | None
    about: bool
    earliest: datetime.date
    latest: datetime.date

    def __init__(self, text: str) -> None:
        if re.fullmatch(PARTIAL_DATE, text) is None:
            raise ValueError(
                f"{text!r} is not a partial date: write a year such as '2021', a month such as"
                " '2021-11' or a day such as '2021-11-05'; '1995~' for about 1995; or an interval"
                " such as '2023-07-15/2023-07-16' or '2019/..'"
            )
        ends = [None if end == OPEN else _read_end(end, text) for end in text.split("/")]
        stated = [end for end in ends if end is not None]
        first, last = ends[0], ends[-1]
        if first and last and first.first > last.last:
            raise ValueError(f"{text!r} is not a partial date: it ends before it begins")
        months = {(end.year, end.month) for end in stated}
        is_single = len(ends) == 1
        for name, value in (
            ("_text", text),
            ("year", stated[0].year),
            ("month", stated[0].month if len(months) == 1 and None not in ends else None),
            ("day", stated[0].day if is_single else None),
            ("about", any(end.about for end in stated)),
            ("earliest", first.earliest if first else datetime.date.min),
            ("latest", last.latest if last else datetime.date.max),
        ):
            object.__setattr__(self, name, value)

    def relative_to(
        self, other: "PartialDate | datetime.date"
    ) -> Literal["before", "same", "after", "maybe"]:
        """Return whether the day is certainly before, the same as, or after another one."""
        if (bounds := _bounds(other)) is None:
            raise TypeError("a partial date is relative to a date or to another partial date")
        if self.latest < bounds[0]:
            return "before"
        if self.earliest > bounds[1]:
            return "after"
        return "same" if self.earliest == self.latest == bounds[0] == bounds[1] else "maybe"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a PartialDate is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a PartialDate is immutable: {name} cannot be deleted")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f'PartialDate("{self}")'

    def __reduce__(self) -> tuple[type["PartialDate"], tuple[str]]:
        return PartialDate, (str(self),)  # for shallow and deep copies

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialDate):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: "PartialDate | datetime.date") -> bool:
        if (bounds := _bounds(other)) is None:
            return NotImplemented
        return self.latest < bounds[0]

    def __le__(self, other: "PartialDate | datetime.date") -> bool:
        if (bounds := _bounds(other)) is None:
            return NotImplemented
        return self.latest <= bounds[0]

    def __gt__(self, other: "PartialDate | datetime.date") -> bool:
        if (bounds := _bounds(other)) is None:
            return NotImplemented
        return self.earliest > bounds[1]

    def __ge__(self, other: "PartialDate | datetime.date") -> bool:
        if (bounds := _bounds(other)) is None:
            return NotImplemented
        return self.earliest >= bounds[1]


class _End:
    """An end of an interval, or a single date: as it is stated, and what it may mean."""

    def __init__(self, year: int, month: int | None, day: int | None, *, about: bool) -> None:
        self.year, self.month, self.day, self.about = year, month, day, about
        last_month = 12 if month is None else month
        self.first = datetime.date(year, 1 if month is None else month, 1 if day is None else day)
        last_day = day or calendar.monthrange(year, last_month)[1]
        self.last = datetime.date(year, last_month, last_day)
        self.earliest, self.latest = self.first, self.last
        if about:
            self.earliest = _or_limit(lambda: self._moved(self.first, -1), datetime.date.min)
            self.latest = _or_limit(lambda: self._moved(self.last, 1), datetime.date.max)

    def _moved(self, day: datetime.date, sign: int) -> datetime.date:
        """Return the day as far away as an approximate date may mean; may raise an error."""
        if self.day:
            return day + datetime.timedelta(days=sign * ABOUT_DAYS)
        months = ABOUT_MONTHS if self.month else 12 * ABOUT_YEARS
        months_since_zero = day.year * 12 + day.month - 1 + sign * months
        year, month = months_since_zero // 12, months_since_zero % 12 + 1
        return datetime.date(year, month, 1 if sign < 0 else calendar.monthrange(year, month)[1])


def _or_limit(move: Callable[[], datetime.date], limit: datetime.date) -> datetime.date:
    try:
        return move()
    except (ValueError, OverflowError, IndexError):  # before the year 1, or after 9999
        return limit


def _read_end(end: str, text: str) -> _End:
    match = _ENDS.fullmatch(end)
    assert match is not None
    year, month, day = (int(part) if part else None for part in match.groups()[:3])
    assert year is not None
    try:
        return _End(year, month, day, about=match[4] is not None)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a calendar date: {error}") from None


def _bounds(value: object) -> tuple[datetime.date, datetime.date] | None:
    if isinstance(value, PartialDate):
        return value.earliest, value.latest
    # In Python, datetime is a subclass of date, but the two can't be compared.
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value, value
    return None
