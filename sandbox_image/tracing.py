"""Moments that record how they are used, so that it is known until when the answers hold.

A constraint that gets such a `now` or `today` computes as with the real one. Every use of it (a
comparison, a difference, the hour) notes how far off the next instant is at which the answer could
change; the earliest of these is when the constraint has to be called again. Until then it would do
the very same.

They are no subclasses: code written in C would treat those as instances of their base, and nothing
would be noted. C code therefore refuses them, and the evaluation falls back to a plain moment. For
`isinstance` they are instances of the real class. The result of a use that cannot be followed (a
text, a hash) may change with the next day, or for an instant with the next minute.
"""

import datetime
import dis
import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, ClassVar

US = datetime.timedelta(microseconds=1)
# Times of a wall clock: without a zone.
_FIRST, _LAST = datetime.datetime.min, datetime.datetime.max  # noqa: DTZ901
CALENDAR = (_LAST - _FIRST) // US
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# Rounding error of floating point numbers, in microseconds, over a few thousand years.
ROUNDING = 2

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Clock:
    """The distance, in microseconds, to the next instant at which an answer could change."""

    def __init__(self) -> None:
        self.soonest: int | None = None

    def note(self, distance: int) -> None:
        """Note that an answer could change at this distance from now."""
        distance = min(max(distance, 1), CALENDAR)
        if self.soonest is None or distance < self.soonest:
            self.soonest = distance


class Steps:
    """The steps in which a value moves: microseconds, or days from the next midnight on."""

    def __init__(self, clock: Clock, size: int, first: int, escape: int) -> None:
        self.clock, self.size, self.first, self._escape = clock, size, first, escape

    @classmethod
    def days(cls, clock: Clock, to_midnight: int = DAY) -> "Steps":
        """Make steps of days, of which the next one begins in `to_midnight` microseconds."""
        return cls(clock, DAY, to_midnight, to_midnight)

    @classmethod
    def microseconds(cls, clock: Clock, to_minute: int) -> "Steps":
        """Make steps of microseconds; uses that cannot be followed change with the next minute."""
        return cls(clock, 1, 1, to_minute)

    def ahead(self, number: int) -> None:
        """Note that an answer could change after `number` steps, at least one."""
        self.clock.note(self.first + (max(number, 1) - 1) * self.size)

    def escape(self) -> None:
        """Note that a value is used in a way that cannot be followed."""
        self.clock.note(self._escape)


class Traced:
    """Base of all traced values: a real value, and a note of each use."""

    __slots__ = ("_real", "_steps")
    _kind: ClassVar[type]

    def __init__(self, real: Any, steps: Steps) -> None:
        self._real, self._steps = real, steps

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind

    def _escaped(self) -> Any:
        self._steps.escape()
        return self._real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._escaped(), name)

    def __hash__(self) -> int:
        return hash(self._escaped())

    def __str__(self) -> str:
        return str(self._escaped())

    def __repr__(self) -> str:
        return repr(self._escaped())

    def __format__(self, form: str) -> str:
        return format(self._escaped(), form)

    def __copy__(self) -> "Traced":
        return self

    def __deepcopy__(self, memo: object) -> "Traced":
        return self

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        raise NotImplementedError


def _comparing(how: Callable[[Any, Any], bool]) -> Callable[[Traced, Any], Any]:
    return lambda self, other: self._compare(other, how)


for _name, _how in _COMPARISONS.items():
    setattr(Traced, _name, _comparing(_how))


def plain(value: Any) -> Any:
    """Return the real value, and note that its use cannot be followed."""
    return value._escaped() if _is_traced(value) else value


def _is_traced(value: object) -> bool:
    return issubclass(type(value), Traced)


def _is(value: object, kind: type) -> bool:
    return issubclass(type(value), kind)


def _forward(name: str) -> Callable[..., Any]:
    function = divmod if name == "divmod" else getattr(operator, name)

    def forward(self: Traced, *others: Any) -> Any:
        return function(self._escaped(), *map(plain, others))

    return forward


def _reflected(name: str) -> Callable[..., Any]:
    function = divmod if name == "divmod" else getattr(operator, name)

    def backward(self: Traced, other: Any) -> Any:
        return function(plain(other), self._escaped())

    return backward


class Number(Traced):
    """A number that moves by `slope` with every step."""

    __slots__ = ("_slope",)

    def __init__(self, real: float, steps: Steps, slope: float) -> None:
        super().__init__(real, steps)
        self._slope = slope

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if _is_traced(other):
            return how(self._escaped(), plain(other))
        if not isinstance(other, (int, float)):
            self._steps.escape()
            return how(self._real, other)
        self._meet(other)
        return how(self._real, other)

    def _meet(self, other: float) -> None:
        """Note when this number reaches the other one, or leaves it."""
        distance = other - self._real
        if self._slope and math.isfinite(distance) and distance * self._slope >= 0:
            with suppress(OverflowError):  # it never does
                steps = math.floor(abs(distance / self._slope) - 1e-6)
                self._steps.ahead(steps - (ROUNDING if self._steps.size == 1 else 0))

    def _moved(self, real: float, slope: float) -> Any:
        return _number(real, self._steps, slope)

    def __bool__(self) -> bool:
        self._meet(0)
        return bool(self._real)

    def __neg__(self) -> Any:
        return self._moved(-self._real, -self._slope)

    def __pos__(self) -> "Number":
        return self

    def __abs__(self) -> Any:
        self._meet(0)
        return -self if self._real < 0 else self

    def __add__(self, other: Any) -> Any:
        if not _is_number(other):
            return _add(self, other)
        return self._moved(self._real + other, self._slope)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if not _is_number(other):
            return operator.sub(self._escaped(), plain(other))
        return self._moved(self._real - other, self._slope)

    def __rsub__(self, other: Any) -> Any:
        if not _is_number(other):
            return operator.sub(plain(other), self._escaped())
        return self._moved(other - self._real, -self._slope)

    def __mul__(self, other: Any) -> Any:
        if not _is_number(other):
            return operator.mul(self._escaped(), plain(other))
        return self._moved(self._real * other, self._slope * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if not _is_number(other) or not other:
            return operator.truediv(self._escaped(), plain(other))
        return self._moved(self._real / other, self._slope / other)


def _number(real: float, steps: Steps, slope: float) -> Any:
    """Return a number that moves; a plain one if rounding hides how it moves."""
    if isinstance(real, float) and not math.ulp(real) <= abs(slope) < math.inf:
        steps.escape()
        return real
    return Number(real, steps, slope)


def _add(one: Traced, other: Any) -> Any:
    return operator.add(one._escaped(), plain(other))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *more: function(self._escaped(), *more)


for _function in (int, float, operator.index, math.trunc, math.floor, math.ceil, round):
    setattr(Number, f"__{_function.__name__}__", _converted(_function))
for _name in ("floordiv", "mod", "divmod", "pow"):
    setattr(Number, f"__{_name}__", _forward(_name))
    setattr(Number, f"__r{_name}__", _reflected(_name))
Number.__rtruediv__ = _reflected("truediv")  # type: ignore[attr-defined]


class Span(Traced):
    """A time span that grows or shrinks by one step with every step (`sign`)."""

    __slots__ = ("_sign",)
    _kind = datetime.timedelta

    def __init__(self, real: datetime.timedelta, steps: Steps, sign: int) -> None:
        super().__init__(real, steps)
        self._sign = sign

    @property
    def _is_daily(self) -> bool:
        return self._steps.size == DAY

    def _meet(self, other: datetime.timedelta) -> None:
        distance = (other - self._real) // US * self._sign
        if distance >= 0:
            self._steps.ahead(distance // self._steps.size)

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if _is(other, Span):
            return how(self._escaped(), plain(other))
        if not isinstance(other, datetime.timedelta):
            return NotImplemented
        self._meet(other)
        return how(self._real, other)

    def __bool__(self) -> bool:
        self._meet(datetime.timedelta())
        return bool(self._real)

    @property
    def days(self) -> Any:
        """Return the whole days."""
        if self._is_daily:
            return Number(self._real.days, self._steps, self._sign)
        self._next_multiple(DAY)
        return self._real.days

    @property
    def seconds(self) -> int:
        """Seconds of the day that has begun; noted minute by minute."""
        self._next_multiple(MINUTE)
        return int(self._real.seconds)

    def total_seconds(self) -> Any:
        """Return the whole span in seconds."""
        slope = self._sign * self._steps.size / 1_000_000
        return _number(self._real.total_seconds(), self._steps, slope)

    def _next_multiple(self, size: int) -> None:
        """Note when the number of whole units of this length changes."""
        if self._is_daily:
            self._steps.ahead(1)
            return
        rest = self._real // US % size
        self._steps.ahead(size - rest if self._sign > 0 else rest + 1)

    def __neg__(self) -> "Span":
        return Span(-self._real, self._steps, -self._sign)

    def __pos__(self) -> "Span":
        return self

    def __abs__(self) -> "Span":
        self._meet(datetime.timedelta())
        return -self if self._real < datetime.timedelta() else self

    def __add__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return Span(self._real + other, self._steps, self._sign)
        return _add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return Span(self._real - other, self._steps, self._sign)
        return operator.sub(self._escaped(), plain(other))

    def __rsub__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return Span(other - self._real, self._steps, -self._sign)
        return operator.sub(plain(other), self._escaped())

    def __truediv__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta and other:
            slope = self._sign * self._steps.size / (other // US)
            return _number(self._real / other, self._steps, slope)
        return operator.truediv(self._escaped(), plain(other))

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta and other > datetime.timedelta():
            self._next_multiple(other // US)
            return self._real // other
        return operator.floordiv(self._escaped(), plain(other))


Span.__rfloordiv__ = _reflected("floordiv")  # type: ignore[attr-defined]
for _name in ("mul", "mod", "divmod"):
    setattr(Span, f"__{_name}__", _forward(_name))
    setattr(Span, f"__r{_name}__", _reflected(_name))
Span.__rtruediv__ = _reflected("truediv")  # type: ignore[attr-defined]


class Day(Traced):
    """A date that moves on at midnight."""

    __slots__ = ()
    _kind = datetime.date

    def _reaches(self, ordinal: int) -> None:
        self._steps.ahead(ordinal - self._real.toordinal())

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if _is(other, Day):
            return self._compare_traced(other, how)
        if _is_traced(other) or not isinstance(other, datetime.date):
            return NotImplemented
        if type(other) is not datetime.date:  # nobody would pass a traced one to its own class
            return how(self._escaped(), other)
        distance = other.toordinal() - self._real.toordinal()
        if distance >= 0:
            self._steps.ahead(distance)
        return how(self._real, other)

    def _compare_traced(self, other: "Day", how: Callable[[Any, Any], bool]) -> bool:
        if self._steps.first != other._steps.first:  # they do not move together
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

    def __add__(self, other: Any) -> Any:
        if type(other) is not datetime.timedelta:
            return _add(self, other)
        return self._shifted(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return self._shifted(operator.sub, other)
        if type(other) is datetime.date:
            return Span(self._real - other, self._steps, 1)
        return operator.sub(self._escaped(), plain(other))

    def __rsub__(self, other: Any) -> Any:
        if type(other) is datetime.date:
            return Span(other - self._real, self._steps, -1)
        return operator.sub(plain(other), self._escaped())

    def _shifted(self, how: Callable[[Any, Any], Any], by: datetime.timedelta) -> "Day":
        try:
            shifted = how(self._real, by)
        except OverflowError:
            self._steps.escape()
            raise
        if shifted > self._real:  # from some day on this raises
            self._steps.ahead(datetime.date.max.toordinal() - shifted.toordinal() + 1)
        return Day(shifted, self._steps)


class Time(Traced):
    """A time of the day."""

    __slots__ = ()
    _kind = datetime.time

    def _at(self, moment: datetime.time) -> int:
        since = datetime.datetime.combine(datetime.date.min, moment.replace(tzinfo=None))
        return (since - _FIRST) // US

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


class Moment(Traced):
    """A moment that moves on.

    Its clock is that of its zone; when the zone's offset changes, everything is evaluated again.
    """

    __slots__ = ("_clock",)
    _kind = datetime.datetime

    def __init__(self, real: datetime.datetime, clock: Clock) -> None:
        self._clock = clock
        wall = real.replace(tzinfo=None)
        of_day = (wall - datetime.datetime.combine(wall.date(), datetime.time())) // US
        super().__init__(real, Steps.microseconds(clock, MINUTE - of_day % MINUTE))
        for distance in _changes_of_offset(real):
            clock.note(distance)

    def _days(self) -> Steps:
        wall = self._real.replace(tzinfo=None)
        of_day = (wall - datetime.datetime.combine(wall.date(), datetime.time())) // US
        return Steps.days(self._clock, DAY - of_day)

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if _is(other, Moment):
            return how(self._real, other._real)  # they move together
        if _is_traced(other) or not isinstance(other, datetime.datetime):
            return NotImplemented
        with suppress(TypeError):  # one has a zone, the other has none: they never compare
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
        return _number(self._real.timestamp(), self._steps, 1e-6)

    def astimezone(self, tz: datetime.tzinfo | None = None) -> "Moment":
        """See datetime."""
        return Moment(self._real.astimezone(tz), self._clock)

    def replace(self, **parts: Any) -> Any:
        """See datetime."""
        if parts.keys() == {"tzinfo"}:
            return Moment(self._real.replace(**parts), self._clock)
        return self._escaped().replace(**{name: plain(part) for name, part in parts.items()})

    def __add__(self, other: Any) -> Any:
        if type(other) is not datetime.timedelta:
            return _add(self, other)
        return self._shifted(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta:
            return self._shifted(operator.sub, other)
        if _is(other, Moment):
            return self._real - other._real
        if type(other) is datetime.datetime:
            return Span(self._real - other, self._steps, 1)
        return operator.sub(self._escaped(), plain(other))

    def __rsub__(self, other: Any) -> Any:
        if type(other) is datetime.datetime:
            return Span(other - self._real, self._steps, -1)
        return operator.sub(plain(other), self._escaped())

    def _shifted(self, how: Callable[[Any, Any], Any], by: datetime.timedelta) -> "Moment":
        try:
            shifted = how(self._real, by)
        except OverflowError:
            self._steps.escape()
            raise
        self._steps.ahead((_LAST - shifted.replace(tzinfo=None)) // US + 1)
        return Moment(shifted, self._clock)


def _changes_of_offset(moment: datetime.datetime) -> Iterator[int]:
    """Yield how far off the zone's next changes of offset are.

    The distances are in microseconds, by the zone's wall clock and in UTC.
    """
    zone = moment.tzinfo
    if zone is None or isinstance(zone, datetime.timezone):
        return
    wall = moment.replace(tzinfo=None)
    yield from _soonest_change(zone, True, wall)
    with suppress(OverflowError):
        yield from _soonest_change(
            zone, False, moment.astimezone(datetime.UTC).replace(tzinfo=None)
        )


def _soonest_change(
    zone: datetime.tzinfo, by_wall: bool, after: datetime.datetime
) -> Iterator[int]:
    for year in (after.year, after.year + 1):
        for change in _changes(zone, by_wall, year):
            if change > after:
                yield (change - after) // US
                return


@functools.lru_cache(maxsize=256)
def _changes(zone: datetime.tzinfo, by_wall: bool, year: int) -> tuple[datetime.datetime, ...]:
    """Return when the zone's offset changes in a year."""
    if not datetime.MINYEAR < year < datetime.MAXYEAR:
        return ()

    def offset(at: datetime.datetime) -> datetime.timedelta | None:
        if by_wall:
            return at.replace(tzinfo=zone).utcoffset()
        return at.replace(tzinfo=datetime.UTC).astimezone(zone).utcoffset()

    found = []
    day = datetime.timedelta(days=1)
    at = datetime.datetime(year, 1, 1)  # noqa: DTZ001
    while at.year == year:
        if offset(at) != offset(at + day):
            before, after = 0, DAY
            while after - before > 1:
                middle = (before + after) // 2
                same = offset(at + middle * US) == offset(at)
                before, after = (middle, after) if same else (before, middle)
            found.append(at + after * US)
        at += day
    return tuple(found)


def can_follow(code: CodeType) -> bool:
    """Return whether every use of a traced moment in a function, nested ones included, is noticed.

    That is so if it catches no exception, and asks neither for a class nor whether something is the
    very same number.
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
