"""Traced numbers and time spans, whose values change as a forecast's clock advances."""

import datetime
import math
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .traced_values import (
    DAY,
    MINUTE,
    US,
    Steps,
    Traced,
    add_plain,
    is_kind,
    is_traced,
    make_forward,
    make_reflected,
    plain,
)

# Floating-point rounding error, in microseconds, over a few thousand years.
ROUNDING = 2


class Number(Traced):
    """A traced number that changes by `slope` with every clock tick."""

    __slots__ = ("_slope",)

    def __init__(self, real: float, steps: Steps, slope: float) -> None:
        super().__init__(real, steps)
        self._slope = slope

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def _compare(self, other: Any, how: Callable[[Any, Any], bool]) -> Any:
        if is_traced(other):
            return how(self._escaped(), plain(other))
        if not isinstance(other, (int, float)):
            self._steps.escape()
            return how(self._real, other)
        self._meet(other)
        return how(self._real, other)

    def _meet(self, other: float) -> None:
        """Record when this number will reach or pass the other number."""
        distance = other - self._real
        if self._slope and math.isfinite(distance) and distance * self._slope >= 0:
            with suppress(OverflowError):  # too many ticks: this number never reaches the other one
                steps = math.floor(abs(distance / self._slope) - 1e-6)
                self._steps.ahead(steps - (ROUNDING if self._steps.size == 1 else 0))

    def _moved(self, real: float, slope: float) -> Any:
        return make_number(real, self._steps, slope)

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
            return add_plain(self, other)
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


def make_number(real: float, steps: Steps, slope: float) -> Any:
    """Return a traced number, or a plain one if rounding hides how it changes per clock tick."""
    if isinstance(real, float) and not math.ulp(real) <= abs(slope) < math.inf:
        steps.escape()
        return real
    return Number(real, steps, slope)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *more: function(self._escaped(), *more)


for _function in (int, float, operator.index, math.trunc, math.floor, math.ceil, round):
    setattr(Number, f"__{_function.__name__}__", _converted(_function))
for _name in ("floordiv", "mod", "divmod", "pow"):
    setattr(Number, f"__{_name}__", make_forward(_name))
    setattr(Number, f"__r{_name}__", make_reflected(_name))
Number.__rtruediv__ = make_reflected("truediv")  # type: ignore[attr-defined]


class Span(Traced):
    """A traced time span that grows (`sign` 1) or shrinks (`sign` -1) with every clock tick."""

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
        if is_kind(other, Span):
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
        """The number of whole days in the span."""
        if self._is_daily:
            return Number(self._real.days, self._steps, self._sign)
        self._next_multiple(DAY)
        return self._real.days

    @property
    def seconds(self) -> int:
        """The seconds beyond the whole days, recorded as changing only once a minute."""
        self._next_multiple(MINUTE)
        return int(self._real.seconds)

    def total_seconds(self) -> Any:
        """Return the total length of the span in seconds."""
        slope = self._sign * self._steps.size / 1_000_000
        return make_number(self._real.total_seconds(), self._steps, slope)

    def _next_multiple(self, size: int) -> None:
        """Record when the number of whole `size`-microsecond units in the span changes."""
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
        return add_plain(self, other)

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
            return make_number(self._real / other, self._steps, slope)
        return operator.truediv(self._escaped(), plain(other))

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is datetime.timedelta and other > datetime.timedelta():
            self._next_multiple(other // US)
            return self._real // other
        return operator.floordiv(self._escaped(), plain(other))


Span.__rfloordiv__ = make_reflected("floordiv")  # type: ignore[attr-defined]
for _name in ("mul", "mod", "divmod"):
    setattr(Span, f"__{_name}__", make_forward(_name))
    setattr(Span, f"__r{_name}__", make_reflected(_name))
Span.__rtruediv__ = make_reflected("truediv")  # type: ignore[attr-defined]
