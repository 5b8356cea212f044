"""Records, the typed objects of a user's state, and references between them."""

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from .dates import PartialDate


@dataclass(kw_only=True)
class Record:
    """A typed object in the state; subclasses are decorated with `@dataclass(kw_only=True)`.

    `key` permanently identifies the record in its collection; `sources` are the numbers of the log
    entries that it is based on.
    """

    key: str
    sources: tuple[int, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__doc__ is None:  # else `dataclass` generates a docstring, taking twice as long
            cls.__doc__ = cls.__name__


# The field with the last day on which a record holds, in the classes that have it.
LAPSES_AFTER = "lapses_after"


def has_lapsed(record: object, today: datetime.date) -> bool:
    """Return whether the last day on which a record holds is over.

    That day is in its field `lapses_after`. A record that has none, or no date in it, never lapses.
    """
    last: Any = getattr(record, LAPSES_AFTER, None)
    is_day = isinstance(last, (datetime.date, PartialDate))
    return bool(is_day and not isinstance(last, datetime.datetime) and last < today)


TrustClass: TypeAlias = Literal["user", "tool", "document", "model"]
# Where an entry comes from, from the most to the least trustworthy.
TRUST_CLASSES: tuple[TrustClass, ...] = ("user", "tool", "document", "model")
# The module that the server adds to a project whose code uses `trust_of`. Its `CLASSES` has the
# first letter of each entry's class, in the order of the log.
ENTRY_CLASSES = "entry_classes"
_BY_LETTER = {one[0]: one for one in TRUST_CLASSES}
_given_classes: Mapping[int, TrustClass] | None = None


def trust_of(record: Record) -> TrustClass:
    """Return where a record comes from: "user", "tool", "document" or "model".

    It is the class of the least trusted entry among the record's sources, so "user" means that the
    person said all of it. In a test, entries are the person's, except those that are given by
    `run_check(…, trust={3: "document"})`.
    """
    return max(map(_class_of, record.sources), key=TRUST_CLASSES.index, default="user")


def _class_of(seq: int) -> TrustClass:
    if _given_classes is not None:
        return _given_classes.get(seq, "user")
    try:
        return _BY_LETTER[import_module(ENTRY_CLASSES).CLASSES[seq - 1]]
    except (ModuleNotFoundError, LookupError):
        raise LookupError(f"it is not known where entry {seq} comes from") from None


def classify_entries(
    classes: Mapping[int, TrustClass] | None,
) -> Mapping[int, TrustClass] | None:
    """Set the classes of entries, other than "user", in a test; return the previous ones."""
    global _given_classes
    previous, _given_classes = _given_classes, classes
    return previous


RecordType = TypeVar("RecordType", bound=Record)


class Ref(Generic[RecordType]):
    """A reference to a record by its class and key, as in `Ref[Passport]("passport-2")`."""

    def __init__(self, key: str) -> None:
        self.key = key

    @property
    def class_name(self) -> str:
        """The name of the record's class; raises TypeError if the reference doesn't give one."""
        name = self._class_name()
        if name is None:
            raise TypeError(
                f"Ref({self.key!r}) does not name a class: write Ref[ClassName]({self.key!r})"
            )
        return name

    def get(self) -> RecordType:
        """Return the record that this reference points to; raise LookupError if it isn't loaded."""
        name, target = self.class_name, self._target()
        for record in _records_with_key(self.key):
            # Two domains may have classes with the same name. The target is a class, or just a name
            # if it was written in quotes.
            if isinstance(target, type):
                matches = isinstance(record, target)
            else:
                matches = name in [one.__name__ for one in type(record).__mro__]
            if matches:
                return cast("RecordType", record)
        raise LookupError(f"no {name} with the key {self.key!r} is loaded")

    def _target(self) -> object:
        # In an object created by `Ref[Passport](…)`, typing stores `Ref[Passport]` under this name.
        (target,) = get_args(getattr(self, "__orig_class__", None)) or (None,)
        return target

    def _class_name(self) -> str | None:
        target = self._target()
        name: str | None = getattr(target, "__name__", None) or getattr(
            target, "__forward_arg__", None
        )
        return name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return (self.key, self._class_name()) == (other.key, other._class_name())

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Ref[{self._class_name() or ''}]({self.key!r})".replace("[]", "")


# Fields that hold no data of their own; objects within records may have others by these names.
_NOT_DATA = ("key", "sources", "set_aside")


def original_data(value: Any) -> Any:
    """Return a record, or a part of one, as the data that it was made of.

    That is a dictionary with the names in that data ("First Name" for `first_name`), and with the
    values that were set aside in their places. A field that is None was null or missing: it is left
    out. Other values are as in the record.
    """
    if isinstance(value, list):
        return [original_data(item) for item in value]
    if isinstance(value, dict):
        return {key: original_data(item) for key, item in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    data = {}
    kept: dict[str, Any] = getattr(value, "set_aside", {})
    for field in fields(value):
        if field.name in _NOT_DATA and (isinstance(value, Record) or field.name == "set_aside"):
            continue
        held = original_data(getattr(value, field.name))
        for name, raw in kept.items():
            base, _, item = name.partition("[")
            if base == field.name:
                held = _with_item(held, json.loads(item[:-1]), raw) if item else raw
        if held is not None:
            data[field.metadata.get("name", field.name)] = held
    return data


def _with_item(held: Any, item: Any, raw: object) -> Any:
    """Return a list or dictionary with an item of it that was set aside."""
    if isinstance(held, list):
        return [*held[:item], raw, *held[item:]]
    return {**(held or {}), item: raw}


def _in_state(key: str) -> Iterable[Record]:
    """Yield the records with this key in all domains; used outside of sandboxes."""
    from importlib import util  # imported here, since sandboxes don't need them
    from pkgutil import iter_modules

    domains = util.find_spec("domains")
    for domain in iter_modules(domains.submodule_search_locations if domains else ()):
        for value in vars(import_module(f"domains.{domain.name}.state")).values():
            for record in value if isinstance(value, list) else [value]:
                if isinstance(record, Record) and record.key == key:
                    yield record


_records_with_key: Callable[[str], Iterable[Record]] = _in_state


def resolve_references_with(
    records_with_key: Callable[[str], Iterable[Record]],
) -> Callable[[str], Iterable[Record]]:
    """Set the function that Ref.get() uses to find records; return the previous function.

    Such a function takes a key and returns the records with that key.
    """
    global _records_with_key
    previous, _records_with_key = _records_with_key, records_with_key
    return previous
