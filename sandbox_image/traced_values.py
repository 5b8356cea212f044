"""Traced values, which wrap a real value and record every use of it on a clock."""

import datetime
import operator
from collections.abc import Callable
from typing import Any, ClassVar

US = datetime.timedelta(microseconds=1)
# The earliest and latest wall-clock times that Python can represent, without a time zone.
FIRST_MOMENT, LAST_MOMENT = datetime.datetime.min, datetime.datetime.max  # noqa: DTZ901
CALENDAR = (LAST_MOMENT - FIRST_MOMENT) // US
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Clock:
    """Records how soon, in microseconds, a result could first change; None if never."""

    def __init__(self) -> None:
        self.soonest: int | None = None

    def note(self, distance: int) -> None:
        """Record that a result could change this many microseconds from now."""
        distance = min(max(distance, 1), CALENDAR)
        if self.soonest is None or distance < self.soonest:
            self.soonest = distance


class Steps:
    """The clock ticks at which a traced value changes: microseconds, or days from midnight on."""

    def __init__(self, clock: Clock, size: int, first: int, escape: int) -> None:
        self.clock, self.size, self.first, self._escape = clock, size, first, escape

    @classmethod
    def days(cls, clock: Clock, to_midnight: int = DAY) -> "Steps":
        """Return steps of one day each; the next day begins in `to_midnight` microseconds."""
        return cls(clock, DAY, to_midnight, to_midnight)

    @classmethod
    def microseconds(cls, clock: Clock, to_minute: int) -> "Steps":
        """Return steps of one microsecond each.

        If a use can't be followed, its result may change in `to_minute` microseconds, when the next
        minute begins.
        """
        return cls(clock, 1, 1, to_minute)

    def ahead(self, number: int) -> None:
        """Record that a result could change after `number` steps (at least one)."""
        self.clock.note(self.first + (max(number, 1) - 1) * self.size)

    def escape(self) -> None:
        """Record that a value was used in a way that can't be followed."""
        self.clock.note(self._escape)


class Traced:
    """Base class for traced values, which wrap a real value and record every use of it."""

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
    """Return a traced value's real value, recording that its use can't be followed."""
    return value._escaped() if is_traced(value) else value


def is_traced(value: object) -> bool:
    """Return whether a value is traced, whatever its `__class__` says."""
    return issubclass(type(value), Traced)


def is_kind(value: object, kind: type) -> bool:
    """Return whether a value is of this type, whatever its `__class__` says."""
    return issubclass(type(value), kind)


def make_forward(name: str) -> Callable[..., Any]:
    """Return a method that applies an operator to the real values."""
    function = divmod if name == "divmod" else getattr(operator, name)

    def forward(self: Traced, *others: Any) -> Any:
        return function(self._escaped(), *map(plain, others))

    return forward


def make_reflected(name: str) -> Callable[..., Any]:
    """Return a method that applies an operator to the real values, in reverse order."""
    function = divmod if name == "divmod" else getattr(operator, name)

    def backward(self: Traced, other: Any) -> Any:
        return function(plain(other), self._escaped())

    return backward


def add_plain(one: Traced, other: Any) -> Any:
    """Return the sum of the real values, recording that its use can't be followed."""
    return operator.add(one._escaped(), plain(other))
