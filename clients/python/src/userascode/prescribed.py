"""Your own classes as the source of a schema, so that a workspace can prescribe them."""

import dataclasses
import datetime
import decimal
import enum
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from userascode.errors import UserAsCodeError
from userascode.schema import PartialDate

HEAD = """\
import dataclasses
import datetime
import decimal
import enum
from dataclasses import dataclass

from uac import PartialDate, Record, Ref
"""
NAMES: Mapping[Any, str] = {
    **{kind: kind.__name__ for kind in (str, int, float, bool)},
    type(None): "None",
    datetime.date: "datetime.date",
    datetime.datetime: "datetime.datetime",
    datetime.time: "datetime.time",
    decimal.Decimal: "decimal.Decimal",
    PartialDate: "PartialDate",
}
# Every record has these fields.
OWN_FIELDS = ("key", "sources")
_REQUIRED = object()


class NoSuchType(UserAsCodeError):
    """A class or one of its fields cannot be in a schema."""


def render_classes(*classes: type) -> str:
    """Return the source of a schema: a class of records for each dataclass or Pydantic model.

    A field whose type is another of these classes refers to a record of it. Other classes and enums
    that the fields name become parts of the records. Raises NoSuchType.
    """
    rendered: dict[type, str] = {}
    for class_ in classes:
        _render(class_, classes, rendered)
    return "\n\n".join([HEAD, *rendered.values()])


def _render(class_: type, records: Sequence[type], rendered: dict[type, str]) -> None:
    """Render a class, unless it has been; before it, the classes that are parts of it."""
    if class_ in rendered:
        return
    rendered[class_] = ""  # it may refer to itself
    if issubclass(class_, enum.Enum):
        members = [f"    {member.name} = {member.value!r}" for member in class_]
        text = "\n".join([f"class {class_.__name__}(enum.Enum):", *members])
    else:
        lines = []
        for name, type_, default in _fields(class_):
            try:
                annotation = _annotation(type_, records, rendered)
            except TypeError as error:
                raise NoSuchType(f"{class_.__name__}.{name}: {error}") from None
            # A class of records may be defined further down.
            quoted = f'"{annotation}"' if "Ref[" in annotation else annotation
            lines.append(f"    {name}: {quoted}{_default(default)}")
        base = "(Record)" if class_ in records else ""
        doc = inspect.cleandoc(_doc(class_))
        body = [f"    {doc!r}", *lines] if doc else lines
        head = f"@dataclass(kw_only=True)\nclass {class_.__name__}{base}:"
        text = "\n".join([head, *(body or ["    pass"])])
    del rendered[class_]  # its parts stand before it
    rendered[class_] = f"{text}\n"


def _fields(class_: type) -> Iterator[tuple[str, Any, object]]:
    """Yield each field with its type and its default."""
    hints = get_type_hints(class_)
    if issubclass(class_, BaseModel):
        for name, info in class_.model_fields.items():
            default = info.default_factory() if info.default_factory else info.default  # type: ignore[call-arg]
            if name not in OWN_FIELDS:
                yield name, hints[name], _REQUIRED if default is PydanticUndefined else default
    elif dataclasses.is_dataclass(class_):
        for field in dataclasses.fields(class_):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if field.name not in OWN_FIELDS:
                missing = default is dataclasses.MISSING
                yield field.name, hints[field.name], _REQUIRED if missing else default
    else:
        raise NoSuchType(f"{class_.__name__} is neither a dataclass nor a Pydantic model.")


def _doc(class_: type) -> str:
    doc = class_.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{class_.__name__}(") else doc  # dataclass writes that itself


def _annotation(type_: Any, records: Sequence[type], rendered: dict[type, str]) -> str:
    if type_ in NAMES:
        return NAMES[type_]
    arguments = [one for one in get_args(type_) if one is not Ellipsis]
    origin = get_origin(type_)
    if origin in (Union, types.UnionType):
        return " | ".join(_annotation(one, records, rendered) for one in arguments)
    if origin in (list, Sequence) and len(arguments) == 1:
        return f"list[{_annotation(arguments[0], records, rendered)}]"
    if origin in (dict, Mapping) and arguments[0] is str:
        return f"dict[str, {_annotation(arguments[1], records, rendered)}]"
    if not isinstance(type_, type) or origin is not None:
        raise TypeError(
            f"{type_} cannot be in a schema: use str, int, float, bool, a date, a datetime, a time,"
            " Decimal, PartialDate, an enum, a dataclass, list[...], dict[str, ...], or a union."
        )
    _render(type_, records, rendered)
    return f"Ref[{type_.__name__}]" if type_ in records else type_.__name__


def _default(value: object) -> str:
    if value is _REQUIRED:
        return ""
    if isinstance(value, enum.Enum):
        return f" = {type(value).__name__}.{value.name}"
    if isinstance(value, list | dict) and not value:
        return f" = dataclasses.field(default_factory={type(value).__name__})"
    module = "decimal." if isinstance(value, decimal.Decimal) else ""
    return f" = {module}{value!r}"
