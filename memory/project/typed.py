"""Typed JSON: the encoding of values used by queries, dumps, edits and the API."""

import datetime
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from memory.project.conform import conform
from memory.project.errors import EditError
from memory.project.outline import Domain
from memory.project.types import Scalar, bare_name
from memory.project.values import EnumMember, PartialDate, Record, Ref, Struct, Value

_MAX_JSON_INT = 2**53 - 1
# As deep as the API takes JSON, and the objects that hold it.
MAX_DEPTH = 64


def encode(value: object, domain: Domain | None = None) -> Any:  # noqa: C901 - one case for each kind
    """Return a value as typed JSON.

    If `domain` is given, the result has the form of a sandbox dump: defaults are filled in, and
    enum members include their values. `domain` must be the domain whose classes the value uses.
    Otherwise, the value is encoded as it is stored, so that `decode` can restore it.
    """
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return value if abs(value) <= _MAX_JSON_INT else {"$int": str(value)}
        case Decimal():
            return {"$decimal": str(value)}
        case datetime.datetime():
            return {"$datetime": value.isoformat()}
        case datetime.date():
            return {"$date": value.isoformat()}
        case datetime.time():
            return {"$time": value.isoformat()}
        case PartialDate(text):
            return {"$partial_date": text}
        case EnumMember(class_name, member):
            tagged = {"$enum": f"{class_name}.{member}"}
            if domain:
                tagged["value"] = encode(dict(domain.enums[class_name].members)[member])
            return tagged
        case Ref(class_name, key):
            # In a sandbox dump, class names are not qualified by their domain.
            name = bare_name(class_name) if domain else class_name
            return {"$ref": name, "key": key}
        case Struct(class_name, fields):
            return {"$object": class_name, "fields": _encode_fields(class_name, fields, domain)}
        case Record(class_name, key, fields, sources):
            return {
                "$record": class_name,
                "key": key,
                "sources": list(sources),
                "fields": _encode_fields(class_name, fields, domain),
            }
        case Mapping():
            items = {name: encode(item, domain) for name, item in value.items()}
            if any(name.startswith("$") for name in items):
                return {"$dict": [[name, item] for name, item in items.items()]}
            return items
        case list():
            return [encode(item, domain) for item in value]
    raise TypeError(f"{type(value).__name__} is not a value of a project")


def _encode_fields(
    class_name: str, fields: Mapping[str, Value], domain: Domain | None
) -> dict[str, Any]:
    values: Mapping[str, object] = fields
    if domain:
        declared = domain.classes[class_name].fields
        values = {field.name: fields.get(field.name, field.default) for field in declared}
    return {name: encode(value, domain) for name, value in values.items()}


def encode_plain(value: Value) -> Any:
    """Return a value as plain JSON, the short form in which an edit may give it."""
    match value:
        case Struct(_, fields):
            return {name: encode_plain(item) for name, item in fields.items()}
        case EnumMember(_, member):
            return member
        case Ref(_, key):
            return key
        case list():
            return [encode_plain(item) for item in value]
        case dict():
            return {name: encode_plain(item) for name, item in value.items()}
    typed = encode(value)
    return next(iter(typed.values())) if isinstance(typed, dict) else typed


def decode(data: object, where: str, depth: int = 0) -> Any:
    """Parse an edit's plain or typed JSON.

    Objects without a `$` key stay dictionaries until their type is known and they can be converted
    to it. For JSON that no field can hold, raises an EditError that mentions `where`, the value's
    path.
    """
    if depth > MAX_DEPTH:
        raise EditError("too_deep", f"{where} is nested deeper than {MAX_DEPTH} levels: flatten it")
    if isinstance(data, list):
        return [decode(item, where, depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    tag = next((key for key in data if str(key).startswith("$")), None)
    if tag is None:
        return {name: decode(value, where, depth + 1) for name, value in data.items()}
    content, names = data[tag], data.keys() - {tag}
    fields = data.get("fields")
    match tag:
        case "$dict" if not names and isinstance(content, list):
            return {key: decode(item, where, depth + 1) for key, item in content}
        case "$int" if not names and isinstance(content, str) and _INT.fullmatch(content):
            return int(content)
        case "$enum" if names <= {"value"} and str(content).count(".") == 1:
            return EnumMember(*content.split("."))
        case "$ref" if names == {"key"} and isinstance(content, str):
            return Ref(content, str(data["key"]))
        case "$object" if names == {"fields"} and isinstance(fields, dict):
            values = {name: decode(item, where, depth + 1) for name, item in fields.items()}
            return Struct(str(content), values)
        case _ if tag in _SCALARS and not names and isinstance(content, str):
            return conform(content, Scalar(_SCALARS[tag]), Domain(""), where)
    raise EditError(
        "malformed", f"{where}: {data!r:.80} is not a typed JSON value that a field can hold"
    )


_INT = re.compile(r"-?[0-9]{1,400}")
_SCALARS = {
    "$decimal": "decimal.Decimal",
    "$date": "datetime.date",
    "$datetime": "datetime.datetime",
    "$time": "datetime.time",
    "$partial_date": "PartialDate",
}
