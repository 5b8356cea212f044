"""Typed JSON, in which the API writes the values of records."""

from collections.abc import Mapping
from typing import Any


def without_tags(value: Any) -> Any:
    """Return a value of typed JSON without the tags that say its type."""
    if isinstance(value, list):
        return [without_tags(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "$enum" in value:
        return value["value"]
    if "$ref" in value:
        return {"key": value["key"]}
    if "$object" in value:
        return without_tags(value["fields"])
    if "$dict" in value:
        return {name: without_tags(item) for name, item in value["$dict"]}
    if len(value) == 1 and next(iter(value)).startswith("$"):  # $date, $decimal, $int …
        return next(iter(value.values()))
    return {name: without_tags(item) for name, item in value.items()}


def row_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table for an item of a list; a record has a column for each field."""
    if "$record" not in item:
        return dict(item)
    fields = {name: without_tags(value) for name, value in item["fields"].items()}
    return {"key": item["key"], **fields}
