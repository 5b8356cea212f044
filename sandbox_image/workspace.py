"""Give a workspace constraint a user's records in the shapes it declares.

The constraint gets copies of the records. The copies are built from the values stored in the
records, bypassing the record classes' methods, so that the user's code can't interfere. When the
constraint cites a copy as evidence, the original is found by the copy's `id()`.
"""

import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .uac import Record

# Takes a domain and the name of a collection or singleton, and returns the records in it.
Find = Callable[[str, str], Iterable[object]]
# The collections whose records are passed to one of a constraint's parameters; for their form, see
# `memory.project.shapes.Match`.
Binding = Sequence[Mapping[str, Any]]


@dataclass(eq=False, repr=False)
class Shaped:
    """The arguments for a check, and the original records keyed by the `id()` of their copies.

    `left_out` is the number of records left out because they lack a value that the shape requires.
    """

    arguments: dict[str, list[Record]] = field(default_factory=dict)
    originals: dict[int, Record] = field(default_factory=dict)
    left_out: int = 0


def shaped(module: ModuleType, bound: Mapping[str, Binding], find: Find) -> Shaped:
    """Copy the records in each parameter's collections into the shape that the check declares.

    Raises LookupError if a collection or field does not exist; errors raised by the shape's class
    propagate.
    """
    result = Shaped()
    parameters = inspect.signature(module.check).parameters if bound else {}
    for name, binding in bound.items():
        (shape,) = typing.get_args(parameters[name].annotation)
        needed = {
            one.name
            for one in dataclasses.fields(shape)
            if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        }
        copies = result.arguments[name] = []
        for collection in binding:
            for record in find(collection["domain"], collection["name"]):
                if not isinstance(record, Record):
                    continue
                values = _values(record, collection)
                if not needed <= values.keys():
                    result.left_out += 1
                    continue
                copy = shape(**values)
                result.originals[id(copy)] = record
                copies.append(copy)
    return result


def _values(record: Record, collection: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's values, keyed by the names of the shape's fields.

    None values are left out if the shape's field doesn't allow None.
    """
    held = object.__getattribute__(record, "__dict__")
    fields = {"key": "key", "sources": "sources", **collection["fields"]}
    values = {name: _plain(held[own]) for name, own in fields.items()}
    return {
        name: value
        for name, value in values.items()
        if value is not None or name not in collection["not_none"]
    }


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return [_plain(one) for one in value] if isinstance(value, list) else value
