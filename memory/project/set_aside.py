"""Values that do not fit their fields: an object keeps them as they were sent, in `set_aside`.

So no value is lost, no record is refused for one of its values, and a field keeps the type that
constraints and queries were written for. `set_aside` maps a field's name to the value, whose field
is then None; of a list or a mapping, the items that do not fit are set aside one by one, as
`labels[0]` or `hourly["10:00"]`, and the rest stays.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from memory.project.conform import normal_fields, read_value
from memory.project.errors import EditError
from memory.project.outline import SET_ASIDE, Class, Domain
from memory.project.types import ListOf, MapOf, Type, members_of
from memory.project.values import Record, Struct, Value


def item_name(field: str, item: int | str) -> str:
    """Return the name in `set_aside` of a list's item, by index, or a mapping's, by key."""
    return f"{field}[{json.dumps(item, ensure_ascii=False)}]"


def field_of(name: str) -> str:
    """Return the field that a name in `set_aside` belongs to: `labels` for `labels[0]`."""
    return name.partition("[")[0]


def set_aside_of(fields: Mapping[str, Value]) -> dict[str, Any]:
    """Return what an object's fields have set aside."""
    kept = fields.get(SET_ASIDE)
    return kept if isinstance(kept, dict) else {}


def without_set_aside(fields: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    """Return an object's fields with nothing set aside for the named fields."""
    kept = {k: v for k, v in set_aside_of(fields).items() if field_of(k) not in names}
    return {**fields, SET_ASIDE: kept}


def set_aside_in(record: Record) -> Iterator[tuple[str, Any]]:
    """Yield the path of every value set aside in a record, such as `temp.max`, and the value."""
    yield from _within(record.fields, "")


def count_set_aside(record: Record | None) -> int:
    """Return how many values a record has set aside."""
    return sum(1 for _ in set_aside_in(record)) if record else 0


def _within(fields: Mapping[str, Value], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name != SET_ASIDE:
            yield from _within_value(value, f"{prefix}{name}")
    for name, raw in set_aside_of(fields).items():
        yield f"{prefix}{name}", raw


def _within_value(value: Value, path: str) -> Iterator[tuple[str, Any]]:
    match value:
        case Struct(fields=fields):
            yield from _within(fields, f"{path}.")
        case list():
            for index, item in enumerate(value):
                yield from _within_value(item, item_name(path, index))
        case dict():
            for key, item in value.items():
                yield from _within_value(item, item_name(path, key))


def take_in(record: Record, domain: Domain) -> Record:
    """Return the record with all that was set aside and fits by now moved into its fields."""
    fields = _taken_in(record.fields, domain.classes[record.class_name], domain)
    return replace(record, fields=fields)


def _taken_in(fields: Mapping[str, Value], class_: Class, domain: Domain) -> dict[str, Value]:
    taken = {
        name: value if name == SET_ASIDE else _taken_in_value(value, domain)
        for name, value in fields.items()
    }
    for name, raw in set_aside_of(fields).items():
        field = class_.field(field_of(name))
        assert field, f"{name} is set aside for no field of {class_.name}"
        kept = {other: value for other, value in set_aside_of(taken).items() if other != name}
        try:
            if name == field.name:
                value = read_value(raw, field.type, domain, name)
            else:
                value = _with_item(taken.get(field.name, []), name, raw, kept, field.type, domain)
        except EditError:
            continue
        taken |= {field.name: value, SET_ASIDE: kept}
    return normal_fields(taken, class_)


def _taken_in_value(value: Value, domain: Domain) -> Value:
    match value:
        case Struct(class_name, fields):
            return Struct(class_name, _taken_in(fields, domain.classes[class_name], domain))
        case list():
            return [_taken_in_value(item, domain) for item in value]
        case dict():
            return {key: _taken_in_value(item, domain) for key, item in value.items()}
    return value


def _with_item(
    value: Value, name: str, raw: object, kept: Mapping[str, Any], type_: Type, domain: Domain
) -> Value:
    """Return a list or mapping with an item of it that fits by now; raises EditError if none."""
    item = json.loads(name.partition("[")[2][:-1])
    for member in members_of(type_):
        match member, value:
            case MapOf(wanted), dict():
                return {**value, item: read_value(raw, wanted, domain, name)}
            case ListOf(wanted), list():
                before = [other for other in kept if other.startswith(f"{field_of(name)}[")]
                index = item - sum(
                    json.loads(other.partition("[")[2][:-1]) < item for other in before
                )
                return [*value[:index], read_value(raw, wanted, domain, name), *value[index:]]
    raise EditError("type_clash", f"{name} is an item of neither a list nor a mapping")
