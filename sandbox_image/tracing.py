"""Dates and datetimes that record how they are used, to determine how long a result is valid.

A constraint that is given such a `today` or `now` computes the same result as with a real date or
datetime. Every use (a comparison, a difference, reading the hour) records how soon its result could
change. The constraint has to be called again at the earliest of these times; until then, it would
do exactly the same thing.

The traced classes are not subclasses of the real classes: code written in C would treat an instance
of a subclass like an instance of the base class, and nothing would be recorded. As it is, C code
rejects traced values, and the constraint is called with plain values instead. To `isinstance`,
traced values are instances of the real classes. If a use can't be followed, as with formatting or
hashing, its result is assumed to change with the next day or, for a datetime, with the next minute.
"""

import datetime
import dis
import operator
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

from .offset_changes import list_offset_changes
from .traced_numbers import Span, make_number
from .traced_values import (
    DAY,
    FIRST_MOMENT,
    HOUR,
    LAST_MOMENT,
    MINUTE,
    US,
    Clock,
    Steps,
    Traced,
    add_plain,
    is_kind,
    is_traced,
    plain,
)


class _Shiftable(Traced):
    """A traced date or datetime, from which time spans can be added or subtracted."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        if type(other) is not datetime.timedelta:
            return add_plain(self, other)
        return self._shifted(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return self._shifted(operator.sub, other)
        if type(other) is self._kind:
            return Span(self._real - other, self._steps, 1)
        return operator.sub(self._escaped(), plain(other))

    def __rsub__(self, other: Any) -> Any:
        if type(other) is self._kind:
            return Span(other - self._real, self._steps, -1)
        return operator.sub(plain(other), self._escaped())

    def _shifted(self, how: Callable[[Any, Any], Any], by: datetime.timedelta) -> Any:
        try:
            shifted = how(self._real, by)
        except OverflowError:
            self._steps.escape()
            raise
        return self._moved(shifted)

    def _moved(self, real: Any) -> Any:
        raise NotImplementedError


class Day(_Shiftable):
    """A traced date, which advances at midnight."""

    __slots__ = ()
    _kind = datetime.date

    def _reaches(self, ordinal: int) -> None:
        self._steps.ahead(ordinal - self._real.toordinal())

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if is_kind(other, Day):
            return self._compare_traced(other, how)
        if is_traced(other) or not isinstance(other, datetime.date):
            return NotImplemented
        if type(other) is not datetime.date:  # compare a subclass with the plain date
            return how(self._escaped(), other)
        distance = other.toordinal() - self._real.toordinal()
        if distance >= 0:
            self._steps.ahead(distance)
        return how(self._real, other)

    def _compare_traced(self, other: "Day", how: Callable[[Any, Any], bool]) -> bool:
        if self._steps.first != other._steps.first:  # the two days advance at different times
            self._steps.escape()
            other._steps.escape()
        return how(self._real, other._real)

    @property
    def year(self) -> int:
        """See date."""
        year: int = self._real.year
        if year < datetime.MAXYEAR:
            self._reaches(datetime.date(year + 1, 1, 1).toordinal())
        return year

    @property
    def month(self) -> int:
        """See date."""
        year, month = self._real.year, self._real.month
        if (year, month) != (datetime.MAXYEAR, 12):
            following = datetime.date(year + month // 12, month % 12 + 1, 1)
            self._reaches(following.toordinal())
        return int(month)

    def _moved(self, real: datetime.date) -> "Day":
        if real > self._real:  # after some later day, this sum overflows
            self._steps.ahead(datetime.date.max.toordinal() - real.toordinal() + 1)
        return Day(real, self._steps)


class Time(Traced):
    """A traced time of day."""

    __slots__ = ()
    _kind = datetime.time

    def _at(self, moment: datetime.time) -> int:
        since = datetime.datetime.combine(datetime.date.min, moment.replace(tzinfo=None))
        return (since - FIRST_MOMENT) // US

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if not isinstance(other, datetime.time):
            return NotImplemented
        if type(other) is not datetime.time:
            return how(self._escaped(), plain(other))
        own = self._at(self._real)
        if (distance := self._at(other) - own) >= 0:
            self._steps.ahead(distance)
        self._steps.ahead(DAY - own)
        return how(self._real, other)

    @property
    def hour(self) -> int:
        """See time."""
        self._steps.ahead(HOUR - self._at(self._real) % HOUR)
        return int(self._real.hour)

    @property
    def minute(self) -> int:
        """See time."""
        self._steps.ahead(MINUTE - self._at(self._real) % MINUTE)
        return int(self._real.minute)


class Moment(_Shiftable):
    """A traced datetime, which advances every microsecond.

    It follows its time zone's wall clock; when the zone's UTC offset changes, the constraint is
    called again.
    """

    __slots__ = ("_clock",)
    _kind = datetime.datetime

    def __init__(self, real: datetime.datetime, clock: Clock) -> None:
        self._clock = clock
        wall = real.replace(tzinfo=None)
        of_day = (wall - datetime.datetime.combine(wall.date(), datetime.time())) // US
        super().__init__(real, Steps.microseconds(clock, MINUTE - of_day % MINUTE))
        for distance in list_offset_changes(real):
            clock.note(distance)

    def _days(self) -> Steps:
        wall = self._real.replace(tzinfo=None)
        of_day = (wall - datetime.datetime.combine(wall.date(), datetime.time())) // US
        return Steps.days(self._clock, DAY - of_day)

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if is_kind(other, Moment):
            return how(self._real, other._real)  # both datetimes advance together
        if is_traced(other) or not isinstance(other, datetime.datetime):
            return NotImplemented
        with suppress(TypeError):  # only one of them has a time zone: they can never be compared
            distance = (other - self._real) // US
            if distance >= 0:
                self._steps.ahead(distance)
        return how(self._real, other)

    @property
    def tzinfo(self) -> datetime.tzinfo | None:
        """See datetime."""
        zone: datetime.tzinfo | None = self._real.tzinfo
        return zone

    def utcoffset(self) -> datetime.timedelta | None:
        """See datetime."""
        offset: datetime.timedelta | None = self._real.utcoffset()
        return offset

    def date(self) -> Day:
        """See datetime."""
        return Day(self._real.date(), self._days())

    def time(self) -> Time:
        """See datetime."""
        return Time(self._real.time(), self._steps)

    @property
    def year(self) -> int:
        """See datetime."""
        return self.date().year

    @property
    def month(self) -> int:
        """See datetime."""
        return self.date().month

    @property
    def day(self) -> int:
        """See datetime."""
        self._days().escape()
        return int(self._real.day)

    def weekday(self) -> int:
        """See datetime."""
        self._days().escape()
        return int(self._real.weekday())

    def isoweekday(self) -> int:
        """See datetime."""
        return self.weekday() + 1

    @property
    def hour(self) -> int:
        """See datetime."""
        return self.time().hour

    @property
    def minute(self) -> int:
        """See datetime."""
        return self.time().minute

    def timestamp(self) -> Any:
        """See datetime."""
        return make_number(self._real.timestamp(), self._steps, 1e-6)

    def astimezone(self, tz: datetime.tzinfo | None = None) -> "Moment":
        """See datetime."""
        return Moment(self._real.astimezone(tz), self._clock)

    def replace(self, **parts: Any) -> Any:
        """See datetime."""
        if parts.keys() == {"tzinfo"}:
            return Moment(self._real.replace(**parts), self._clock)
        return self._escaped().replace(**{name: plain(part) for name, part in parts.items()})

    def __sub__(self, other: Any) -> Any:
        if is_kind(other, Moment):
            return self._real - other._real
        return super().__sub__(other)

    def _moved(self, real: datetime.datetime) -> "Moment":
        self._steps.ahead((LAST_MOMENT - real.replace(tzinfo=None)) // US + 1)
        return Moment(real, self._clock)


def can_follow(code: CodeType) -> bool:
    """Return whether every use of a traced datetime by this code and its nested code is recorded.

    This is true if the code never catches exceptions, asks for an object's type or compares a
    number with `is`.
    """
    if "builtins" in code.co_names and "type" in code.co_names:
        return False
    before: object = None
    for one in dis.get_instructions(code):
        if one.opname == "POP_EXCEPT" or (one.opname in _LOADS and one.argval == "type"):
            return False
        if one.opname == "IS_OP" and type(before) in (int, float):
            return False
        before = one.argval if one.opname in _CONSTANTS else None
    return all(can_follow(one) for one in code.co_consts if isinstance(one, CodeType))


_LOADS = {"LOAD_GLOBAL", "LOAD_NAME"}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
