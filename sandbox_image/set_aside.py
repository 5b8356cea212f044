"""Find the fields that a query's code reads and that have values set aside in its records."""

import ast
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from .uac import Record

# Maximum number of records named for each field.
MAX_NAMED = 20


def names_read(tree: ast.Module) -> set[str]:
    """Return the names of the attributes that code reads."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def find_set_aside(
    records: Iterable[tuple[str, str, Record]], names: set[str]
) -> list[dict[str, Any]]:
    """Return the fields among `names` with values set aside, each with its count and first keys.

    Each record comes with its domain and collection.
    """
    keys_by_field: dict[tuple[str, str, str], list[str]] = {}
    keeps: dict[type, bool] = {}
    for domain, collection, record in records:
        kind = type(record)
        if kind not in keeps:
            keeps[kind] = _may_set_aside(kind)
        if keeps[kind]:
            for field in dict.fromkeys(_fields(record)):
                if field in names:
                    keys_by_field.setdefault((domain, collection, field), []).append(record.key)
    return [
        {
            "domain": domain,
            "collection": collection,
            "field": field,
            "count": len(keys),
            "keys": [key for key in keys if isinstance(key, str)][:MAX_NAMED],
        }
        for (domain, collection, field), keys in keys_by_field.items()
    ]


def _may_set_aside(kind: type) -> bool:
    """Return whether any class of the records' module holds values that are set aside."""
    module = vars(sys.modules.get(kind.__module__, object))
    return any("set_aside" in getattr(one, "__dataclass_fields__", ()) for one in module.values())


def _fields(value: Any) -> Iterator[str]:
    """Yield the name of each field, at any depth, that has a value set aside."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _fields(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _fields(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            held = getattr(value, field.name, None)
            if field.name != "set_aside":
                yield from _fields(held)
            elif isinstance(held, dict):
                yield from (str(name).partition("[")[0] for name in held)
