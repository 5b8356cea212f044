"""Readable one-line text for typed JSON values, whose content is untrusted."""

import datetime
import json
from collections.abc import Mapping
from typing import Any

from memory.kernel.texts import shortened

# Tags of types whose values are best shown without the tag.
_SCALARS = (
    *("$int", "$float", "$decimal", "$date", "$datetime", "$time", "$partial_date", "$enum"),
    *("$bytes", "$duration"),
)
_MOST_PARTS = 20


def describe_value(value: Any, length: int = 300) -> str:
    """Return a value as one line of text, shortened; plain strings aren't quoted."""
    return shortened(value if isinstance(value, str) else _format_value(value), length)


def scalar(value: Any) -> Any:
    """Return the inner value of an object such as `{"$date": …}`, or anything else unchanged."""
    tag = tag_of(value)
    return value[tag] if tag in _SCALARS else value


def tag_of(value: Any) -> str | None:
    """Return a value's tag, such as `$record`, or None for plain JSON."""
    if not isinstance(value, Mapping):
        return None
    return next((name for name in value if str(name).startswith("$")), None)


def in_zone(value: Any, zone: datetime.tzinfo) -> Any:
    """Return a moment as text in this time zone, and anything else unchanged."""
    if tag_of(value) != "$datetime":
        return value
    moment = datetime.datetime.fromisoformat(value["$datetime"])
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}" if moment.tzinfo else value


def items_of(value: Any) -> list[Any] | None:
    """Return the items of a list, tuple or set, or None for anything else."""
    if isinstance(value, list):
        return value
    tag = tag_of(value)
    return list(value[tag]) if tag in ("$tuple", "$set") else None


def pairs_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the (key, value) pairs of a dict, or None for anything else."""
    match tag_of(value):
        case "$dict":
            return [(key, item) for key, item in value["$dict"]]
        case None if isinstance(value, Mapping):
            return list(value.items())
    return None


def _format_value(value: Any) -> str:
    match tag_of(value):
        case "$record":
            return f"{value['$record']} {value['key']}"
        case "$ref":
            return f"{value['$ref']} {value['key']}"
        case "$object":
            fields = _pairs(list(value["fields"].items()))
            return f"{value['$object']}({fields})"
        case "$duration":
            return f"{value['$duration']} s"
        case tag if tag in _SCALARS:
            return str(value[tag])
    if (items := items_of(value)) is not None:
        parts = ", ".join(_format_value(item) for item in items[:_MOST_PARTS])
        more = len(items) - _MOST_PARTS
        return f"[{parts}{f', … {more:,} more' if more > 0 else ''}]"
    if (pairs := pairs_of(value)) is not None:
        return f"{{{_pairs(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


def _pairs(pairs: list[tuple[Any, Any]]) -> str:
    parts = ", ".join(
        f"{key if isinstance(key, str) else _format_value(key)}: {_format_value(item)}"
        for key, item in pairs[:_MOST_PARTS]
    )
    return parts + (", …" if len(pairs) > _MOST_PARTS else "")
