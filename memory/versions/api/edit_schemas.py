"""JSON schemas of the edits that a proposal may have, derived from their classes."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from memory.project.edits import OPERATIONS, FieldSpec, Kind
from memory.project.values import RecordId

Schema = Mapping[str, Any]

REFERENCE = "#/components/schemas/"
TEXT = {"type": "string"}
SEQ = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
EDIT = f"{REFERENCE}EditRequest"
PLAIN_VALUE = {"$ref": f"{REFERENCE}PlainValue"}


def _typed(name: str, value: Schema) -> Schema:
    """Return the schema of typed JSON: an object whose only key is `name`."""
    return {"properties": {name: value}, "required": [name], "additionalProperties": False}


def _object(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _of_dataclass(cls: Any, operation: str = "") -> Schema:
    """Return the schema of a class; the names that the server sets itself are left out."""
    hints = get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.name != "original"]
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    properties = {field.name: _SCHEMAS[hints[field.name]] for field in fields}
    if not operation:
        return _object(properties, required)
    return _object({"op": {**TEXT, "enum": [operation]}, **properties}, ["op", *required])


_SCHEMAS: dict[Any, Schema] = {
    str: TEXT,
    bool: {"type": "boolean"},
    str | None: {"type": ["string", "null"]},
    object: PLAIN_VALUE,
    Kind: {**TEXT, "enum": [*get_args(Kind)]},
    Mapping[str, object]: {
        "type": "object",
        "description": "Field name → value, in plain or typed JSON.",
        "additionalProperties": PLAIN_VALUE,
    },
    # `append` and `remove`: field → what is added to it or taken out of it.
    tuple[tuple[str, object], ...]: {"type": "object", "additionalProperties": PLAIN_VALUE},
    tuple[int, ...]: {"type": "array", "items": SEQ},
    # `derived`: field → how it was derived.
    tuple[tuple[str, str], ...]: {
        "type": "object",
        "additionalProperties": {**TEXT, "pattern": r"\S"},
        "propertyNames": {"pattern": r"\S"},
    },
    # The members of an enum.
    tuple[tuple[str, str | int], ...]: {
        "type": "object",
        "additionalProperties": {"oneOf": [TEXT, {"type": "integer"}]},
    },
    tuple[RecordId, ...]: {
        "type": "array",
        "items": _object(dict.fromkeys(RecordId._fields, TEXT), [*RecordId._fields]),
    },
}
_SCHEMAS[tuple[FieldSpec, ...]] = {"type": "array", "items": _of_dataclass(FieldSpec)}


def _component(operation: str) -> str:
    return f"Edit{operation.title().replace('_', '')}Request"


DEFINITIONS: Schema = {
    "PlainValue": {
        "description": "Plain JSON, or typed JSON: an object whose only key begins with $.",
        "if": {"type": "object"},
        "then": {
            "anyOf": [
                _typed("$date", {**TEXT, "format": "date"}),
                _typed("$datetime", {**TEXT, "format": "date-time"}),
                _typed("$decimal", {**TEXT, "pattern": r"^-?[0-9]{1,9}(\.[0-9]{1,9})?$"}),
            ]
        },
        "else": {"items": {"type": ["string", "number", "boolean", "null"]}},
    },
    "EditRequest": {
        "description": "One change to a project: see docs/edits.md.",
        "oneOf": [{"$ref": REFERENCE + _component(operation)} for operation in OPERATIONS],
    },
    **{_component(name): _of_dataclass(edit, name) for name, edit in OPERATIONS.items()},
}
