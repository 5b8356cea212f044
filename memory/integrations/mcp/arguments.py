"""Tools' arguments: their schemas for strict clients, and reading what lenient ones send.

Strict clients (OpenAI's strict mode, Gemini) accept only objects whose keys the schema names. So an
object with keys of the caller's own, such as a record's fields, is offered as JSON text. Whatever
was offered, an object, a list or a number is accepted as itself and as JSON text.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from memory.kernel.http.serializers import is_empty

Schema: TypeAlias = dict[str, Any]

# The JSON types of values, as JSON Schema calls them.
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def object_schema(
    properties: Mapping[str, Schema], required: Iterable[str] = (), **more: Any
) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def offer(schema: Schema) -> Schema:
    """Return a schema in the form that strict clients accept.

    Optional properties may be null, since OpenAI's strict mode requires that all are sent. Its
    clients add `additionalProperties: false` themselves; with it, Google's client fails.
    """
    if _is_free(schema):
        description = f"{schema.get('description', '')} Written as JSON text.".strip()
        return {"type": "string", "description": description}
    if isinstance(schema.get("type"), list):
        return {**schema, "type": "string"}
    if "items" in schema:
        return {**schema, "items": offer(schema["items"])}
    if "properties" not in schema:
        return schema
    offered = {
        name: offer(one)
        if name in schema["required"]
        else {"anyOf": [offer(one), {"type": "null"}]}
        for name, one in schema["properties"].items()
    }
    return {"type": "object", "properties": offered, "required": schema["required"]}


def read(value: Any, schema: Schema) -> Any:
    """Return a value in the form that the schema describes, as far as its meaning is certain.

    JSON text becomes the list, object, number or boolean that it stands for, 5.0 becomes 5, and a
    lone value becomes a list of it. Optional properties that are null, "", [] or {} are left out:
    many frameworks send one for each argument that a model does not give.
    """
    types = _types_of(schema)
    if isinstance(value, str) and "string" not in types:
        value = _parse(value, types)
    if isinstance(value, float) and value.is_integer() and types == ["integer"]:
        return int(value)
    if types == ["array"] and not is_empty(value):
        values = value if isinstance(value, list) else [value]
        return [read(one, schema.get("items", {})) for one in values]
    if isinstance(value, dict) and "properties" in schema:
        return _read_properties(value, schema)
    return value


def _read_properties(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    result = {}
    for name, one in value.items():
        if name not in schema["properties"]:
            result[name] = one
            continue
        of_property = schema["properties"][name]
        item = read(one, of_property)
        # A text that stands for nothing, such as "null", is nothing, too, but not where any JSON is
        # meant, as for a field's default.
        is_nothing = is_empty(item if _types_of(of_property) else one)
        if name in schema["required"] or not is_nothing:
            result[name] = item
    return result


def _is_free(schema: Schema) -> bool:
    """Return whether a value may be an object whose keys the schema does not name."""
    types = _types_of(schema)
    return not types or ("object" in types and "properties" not in schema)


def _types_of(schema: Schema) -> list[str]:
    """Return the JSON types that a schema names; none if any JSON is allowed."""
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _parse(text: str, types: list[str]) -> Any:
    """Return the value that a JSON text stands for, if it has one of the types; else the text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    is_number = type(value) in (int, float) and bool({"integer", "number"}.intersection(types))
    fits = not types or value is None or _TYPES[type(value)] in types or is_number
    return value if fits else text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
