"""Make user code fail if it reads a clock or asks for randomness.

Otherwise the same code could return a different result the next time, or on another machine. For
the same reason, the local time zone is UTC on every machine.

The static policy rejects clocks and randomness wherever it sees them. Code that slips past the
policy fails here, with the same advice, instead of returning a result that nobody can reproduce.
Like the policy, this module is not a security boundary: code can get around it, but it is still
inside the sandbox, which is the security boundary.
"""

import ctypes
import datetime
import decimal
import gc
import os
import random
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

# The functions in `time` that always read a clock, and the functions that read a clock unless they
# are passed a time, each with the position of that argument, counting from 1.
CLOCKS = ["time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"]
CLOCKS += [f"{name}_ns" for name in CLOCKS]
WITH_A_MOMENT = {"asctime": 1, "ctime": 1, "gmtime": 1, "localtime": 1, "strftime": 2}


class ClockError(RuntimeError):
    """User code asked for the time."""


class ChanceError(RuntimeError):
    """User code asked for randomness."""


def prepare() -> None:
    """Make clocks raise ClockError and sources of randomness raise ChanceError from now on.

    Modules that have already imported `time` keep the original. The functions in `random` use the
    same seed in every sandbox. The local time zone becomes UTC.
    """
    os.environ["TZ"] = "UTC0"
    time.tzset()
    sys.modules["time"] = _time_without_clocks()
    for kind, name in (
        (datetime.date, "today"),
        (datetime.datetime, "now"),
        (datetime.datetime, "utcnow"),
    ):
        replace_attribute(kind, name, staticmethod(_refuse_clock(f"{kind.__name__}.{name}")))
    for module, name in ((os, "urandom"), (os, "getrandom"), (random, "_urandom")):
        setattr(module, name, _refuse_chance(name.removeprefix("_")))
    setattr(random.Random, "seed", _seed)  # noqa: B010
    _draw_from(_chance)


def start_again() -> None:
    """Reset the random number generator and decimal arithmetic to their initial state."""
    _real_seed(_chance, 0)
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps", "flags"):
        setattr(decimal.DefaultContext, name, getattr(_arithmetic, name))
    decimal.setcontext(_arithmetic.copy())


def _time_without_clocks() -> ModuleType:
    module = ModuleType("time", time.__doc__)
    vars(module).update(vars(time))
    for name in CLOCKS:
        setattr(module, name, _refuse_clock(f"time.{name}"))
    for name, arguments in WITH_A_MOMENT.items():
        setattr(module, name, _with_a_moment(getattr(time, name), arguments))
    return module


def _refuse_clock(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise ClockError(
            f"{name}() reads the clock: use today or now instead; a query has both, and a"
            " constraint's check takes one of them as a parameter"
        )

    return refuse


def _with_a_moment(function: Callable[..., Any], needed: int) -> Callable[..., Any]:
    refuse = _refuse_clock(f"time.{function.__name__}")

    def call(*arguments: object) -> Any:
        if len(arguments) < needed or arguments[needed - 1] is None:
            refuse()
        return function(*arguments)

    return call


def _refuse_chance(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise ChanceError(f"{name}() differs from run to run: compute it from the records instead")

    return refuse


_real_seed = random.Random.seed
_chance = random.Random(0)  # noqa: S311  # nosec B311 # deliberately the same in every sandbox
_arithmetic = decimal.DefaultContext.copy()


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    if a is None:
        raise ChanceError("random numbers without a seed differ from run to run: pass a seed")
    _real_seed(self, a, version)


def _draw_from(generator: random.Random) -> None:
    """Make the functions in the `random` module use this generator.

    The module's own generator is reseeded randomly in every forked process.
    """
    for name, function in list(vars(random).items()):
        if isinstance(getattr(function, "__self__", None), random.Random):
            setattr(random, name, getattr(generator, name))


def replace_attribute(kind: type, name: str, value: object) -> None:
    """Set an attribute of a class written in C, without replacing the class.

    If another class (even a subclass) took its place, isinstance would fail for objects created by
    C code.
    """
    (attributes,) = gc.get_referents(kind.__dict__)
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
