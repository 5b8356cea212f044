"""Partial dates: dates of which only the year, or the year and month, may be known."""

import calendar
import datetime
import re

_TEXT = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


class PartialDate:
    """A year ("2021"), a month ("2021-11") or a day ("2021-11-05").

    It stands for one unknown day between `earliest` and `latest`, inclusive. A comparison with a
    date or another partial date is true only if it is certain to hold: PartialDate("2021") <
    date(2022, 1, 1) is true, while both `<` and `>=` are false between PartialDate("2021") and
    date(2021, 6, 1). To sort partial dates, use `earliest` as the key. Two partial dates are equal
    if their texts are equal; a partial date never equals an object of another type. Raises
    ValueError if `text` has none of the three forms or is not a calendar date.
    """

    __slots__ = ("day", "earliest", "latest", "month", "year")

    year: int
    month: int | None
    day: int | None
    earliest: datetime.date
    latest: datetime.date

    def __init__(self, text: str) -> None:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a partial date: write a year such as '2021', a month such as"
                " '2021-11' or a day such as '2021-11-05'"
            )
        year, month, day = (int(part) if part else None for part in match.groups())
        assert year is not None
        try:
            earliest = datetime.date(year, 1 if month is None else month, 1 if day is None else day)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a calendar date: {error}") from None
        last_month = month or 12
        last_day = day or calendar.monthrange(year, last_month)[1]
        for name, value in (
            ("year", year),
            ("month", month),
            ("day", day),
            ("earliest", earliest),
            ("latest", datetime.date(year, last_month, last_day)),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a PartialDate is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a PartialDate is immutable: {name} cannot be deleted")

    def __str__(self) -> str:
        parts = [f"{self.year:04}"] + [f"{n:02}" for n in (self.month, self.day) if n is not None]
        return "-".join(parts)

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


def _bounds(value: object) -> tuple[datetime.date, datetime.date] | None:
    if isinstance(value, PartialDate):
        return value.earliest, value.latest
    # In Python, datetime is a subclass of date, but the two can't be compared.
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value, value
    return None
