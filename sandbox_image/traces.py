"""Detect whether a constraint has left behind any changes that the next constraint could see.

Running many constraints in one process is many times cheaper than giving each constraint its own.
It is safe as long as none of them changes what another one reads: the collections and records in
the state, and the classes in the schema. Constraints have no reason to change these objects. If a
constraint does, the change is detected here, and the next constraint runs in a different process.
"""

import collections
import dataclasses
import datetime
import decimal
import enum
import operator
import re
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from .uac import PartialDate, Record, Ref

UNCHANGEABLE = (
    *(
        str,
        int,
        float,
        complex,
        bytes,
        type(None),
        range,
        enum.Enum,
        re.Pattern,
        types.EllipsisType,
    ),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal),
    *(PartialDate, Ref, ModuleType, types.BuiltinFunctionType),
)
CONTAINERS = (list, dict, set, collections.deque)


class Traces:
    """The mutable objects in a set of modules, with their contents at the time of creation."""

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self.complete = True  # False if changes to some object could go undetected
        self._contents: list[tuple[Any, list[object]]] = []
        self._classes: set[type] = set()
        self._own = {module.__name__ for module in modules}
        self._look(value for module in modules for value in _named(module))

    def watch(self) -> None:
        """From now on, detect when an attribute of a record is set or deleted in this process.

        This covers only records whose classes are in these modules. The shapes of workspace
        constraints are record classes, too, but their instances are only copies of the user's
        records.
        """
        global _assigned, _watched
        _assigned, _watched = False, self._own
        for kind in self._classes:
            # A class that has its own __setattr__ is frozen or already watched.
            if vars(kind).get("__setattr__") is None:
                type.__setattr__(kind, "__setattr__", _set_attribute)
                type.__setattr__(kind, "__delattr__", _delete_attribute)

    def left(self) -> bool:
        """Return whether any change to the recorded objects has been detected."""
        return _assigned or not all(
            len(before) == len(now) and all(map(operator.is_, before, now))
            for before, now in ((before, _content(one)) for one, before in self._contents)
        )

    def _look(self, values: Iterable[object]) -> None:
        """Record the mutable objects among these values and everything they contain."""
        seen: set[int] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            if isinstance(value, UNCHANGEABLE) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, type):
                if value.__module__ in self._own or value is Record:
                    self._contents.append((value, _content(value)))
                    if not issubclass(value, enum.Enum):
                        self._classes.add(value)
                        pending.extend(_named(value))
            elif isinstance(value, (tuple, frozenset)):
                pending.extend(value)
            elif isinstance(value, CONTAINERS):
                content = _content(value)
                self._contents.append((value, content))
                flat = {kind for kind in set(map(type, content)) if _is_flat(kind)}
                pending.extend(one for one in content if type(one) not in flat)
            elif isinstance(value, types.FunctionType):
                if value.__module__ in self._own:
                    pending.extend((value.__defaults__, value.__kwdefaults__))
            elif isinstance(value, (property, staticmethod, classmethod)):
                pending.extend(_functions(value))
            elif dataclasses.is_dataclass(value):
                pending.extend(getattr(value, field.name) for field in dataclasses.fields(value))
            else:
                self.complete = False


# These are globals because classes watched for one version of a project stay watched when this
# process loads another version that doesn't change them.
_assigned = False
_watched: set[str] = set()  # the names of the modules whose classes are watched


def _set_attribute(record: object, name: str, value: object) -> None:
    global _assigned
    _assigned |= type(record).__module__ in _watched
    object.__setattr__(record, name, value)


def _delete_attribute(record: object, name: str) -> None:
    global _assigned
    _assigned |= type(record).__module__ in _watched
    object.__delattr__(record, name)


def _named(owner: ModuleType | type) -> list[object]:
    """Return the values in a module or class, except those whose names start with "__"."""
    return [value for name, value in vars(owner).items() if not name.startswith("__")]


def _content(value: Any) -> list[object]:
    """Return the objects that a mutable object contains, in order."""
    if isinstance(value, type):
        watched = ("__setattr__", "__delattr__")
        return [one for name, one in vars(value).items() if name not in watched]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value)


def _functions(value: Any) -> Iterator[object]:
    if isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    else:
        yield value.__func__


def _is_flat(kind: type) -> bool:
    """Return whether a class's instances contain nothing mutable, judging by its annotations."""
    if issubclass(kind, UNCHANGEABLE):
        return True
    return dataclasses.is_dataclass(kind) and all(
        _is_unchangeable(field.type) for field in dataclasses.fields(kind)
    )


def _is_unchangeable(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType, tuple):
        return all(map(_is_unchangeable, typing.get_args(annotation)))
    if origin is typing.Literal:
        return True
    kind = annotation if origin is None else origin
    return annotation in (None, ...) or (isinstance(kind, type) and issubclass(kind, UNCHANGEABLE))
