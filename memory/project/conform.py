"""Converting JSON and Python values to declared types, and inferring undeclared types."""

import datetime
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from memory.project.errors import EditError
from memory.project.literals import same
from memory.project.names import check_key
from memory.project.outline import REQUIRED, Class, Domain, Enumeration
from memory.project.types import (
    NONE,
    UNKNOWN,
    ListOf,
    MapOf,
    Named,
    RefTo,
    Scalar,
    Type,
    Union,
    bare_name,
    format_type,
    members_of,
    without_none,
)
from memory.project.values import EnumMember, PartialDate, Ref, Struct, Value

_Parsed = TypeVar("_Parsed")

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_DATETIME = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}")
_TIME = re.compile(_CLOCK)
# Maximum number of bits in an integer; any integer within this limit also fits in a float.
_MAX_BITS = 1000


def conform(value: object, type_: Type, domain: Domain, where: str) -> Value:  # noqa: C901 - one case for each kind
    """Convert `value` to the given type.

    Accepts JSON (a date as text, an object for a dataclass, a key for a reference) as well as
    values that already have the type. Raises EditError if the value doesn't fit; the message
    includes `where`, the value's path.
    """
    match type_:
        case Scalar(name):
            conformed = _SCALARS[name](value)
            if conformed is not None or (value is None and type_ == NONE):
                return conformed
        case Union():
            return _conform_union(value, type_, domain, where)
        case ListOf(element):
            if isinstance(value, list):
                return [
                    conform(item, element, domain, f"{where}[{index}]")
                    for index, item in enumerate(value)
                ]
        case MapOf(item_type):
            if isinstance(value, Mapping):
                return {
                    key: conform(item, item_type, domain, f"{where}[{key!r}]")
                    for key, item in value.items()
                }
        case RefTo(class_name):
            if isinstance(value, str):
                check_key(value, where)
                return Ref(class_name, value)
            if isinstance(value, Ref) and value.class_name in (class_name, bare_name(class_name)):
                return Ref(class_name, value.key)
        case Named(name) if name in domain.enums:
            member = _member(value, domain.enums[name])
            if member:
                return member
        case Named(name):
            if isinstance(value, Struct) and value.class_name == name:
                value = value.fields
            if isinstance(value, Mapping):
                return Struct(name, conform_fields(value, domain.classes[name], domain, where))
    raise _clash(value, type_, domain, where)


def read_value(value: object, type_: Type, domain: Domain, where: str) -> Value:
    """Convert a caller's value: as `conform`, and a text that can only mean one value of the type.

    That is "12" for an int and "12.50" for a float or decimal, but neither "012" nor "3,5".
    """
    try:
        return conform(value, type_, domain, where)
    except EditError:
        pattern, parse = _TEXTS.get(without_none(type_), (_NEVER, str))
        if isinstance(value, str) and pattern.fullmatch(value):
            return conform(parse(value), type_, domain, where)
        raise


def conform_fields(
    data: Mapping[str, object], class_: Class, domain: Domain, where: str
) -> dict[str, Value]:
    """Return a new object's fields in declared order, leaving out those with default values.

    Raises EditError if a field is unknown, a required field is missing, or a value doesn't fit its
    field's type.
    """
    fields = conform_some_fields(data, class_, domain, where)
    for field in class_.fields:
        if field.default is REQUIRED and field.name not in fields:
            raise EditError(
                "missing_field",
                f"{where}.{field.name} is missing: give it a value of type "
                f"{format_type(field.type)}, or make it optional with widen_field",
            )
    return normal_fields(fields, class_)


def conform_some_fields(
    data: Mapping[str, object], class_: Class, domain: Domain, where: str
) -> dict[str, Value]:
    """Convert the given fields to their declared types, keeping those with default values."""
    fields: dict[str, Value] = {}
    for name, value in data.items():
        field = class_.field(name)
        if field is None:
            choices = ", ".join(field.name for field in class_.fields) or "no fields"
            raise EditError(
                "unknown_field",
                f"{where} has no field {name!r}: it has {choices}; add a new field with add_field",
            )
        fields[name] = conform(value, field.type, domain, f"{where}.{name}")
    return fields


def normal_fields(fields: Mapping[str, Value], class_: Class) -> dict[str, Value]:
    """Return fields in their class's declared order, leaving out those with default values."""
    return {
        field.name: fields[field.name]
        for field in class_.fields
        if field.name in fields and not same(field.default, fields[field.name])
    }


def infer_scalar(value: object, where: str) -> Type:
    """Return the type of a JSON scalar; text that is not exactly a date or datetime is `str`."""
    match value:
        case None:
            return NONE
        case bool():
            return Scalar("bool")
        case int():
            return Scalar("int")
        case float():
            return Scalar("float")
        case str() if _date(value):
            return Scalar("datetime.date")
        case str() if _datetime(value):
            return Scalar("datetime.datetime")
        case str():
            return Scalar("str")
    raise EditError("type_clash", f"{where}: {type(value).__name__} is not a JSON value")


def make_aware(value: Value, zone: datetime.tzinfo) -> Value:
    """Return a value whose datetimes without an offset are in this zone, with its offset then.

    So datetimes of one field can always be compared and subtracted.
    """
    match value:
        case datetime.datetime(tzinfo=None):
            offset = value.replace(tzinfo=zone).utcoffset()
            return value.replace(tzinfo=datetime.timezone(offset)) if offset is not None else value
        case Struct(class_name, fields):
            return Struct(class_name, {name: make_aware(v, zone) for name, v in fields.items()})
        case list():
            return [make_aware(item, zone) for item in value]
        case dict():
            return {key: make_aware(item, zone) for key, item in value.items()}
    return value


def is_date(text: str) -> bool:
    """Return whether the entire text is an ISO date or datetime."""
    return bool(_date(text) or _datetime(text))


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _conform_union(value: object, type_: Union, domain: Domain, where: str) -> Value:
    if value is None and NONE in type_.members:
        return None
    core = without_none(type_)
    alternatives = members_of(core)
    if len(alternatives) == 1:
        return conform(value, core, domain, where)
    # Try `str` last, so that a string is parsed as a date, enum member or key if possible.
    for alternative in sorted(alternatives, key=lambda member: member == Scalar("str")):
        try:
            return conform(value, alternative, domain, where)
        except EditError:
            continue
    raise _clash(value, type_, domain, where)


def _clash(value: object, type_: Type, domain: Domain, where: str) -> EditError:
    if type_ == UNKNOWN:
        return EditError(
            "type_clash",
            f"{where} has no type yet but got {shown(value)}: give it a type with widen_field",
        )
    if type(value) is int and value.bit_length() > _MAX_BITS:
        return EditError(
            "type_clash", f"{where} got an integer of more than 300 digits: send it as text"
        )
    expected = format_type(type_)
    if isinstance(type_, Named) and type_.name in domain.enums:
        members = (name for name, _ in domain.enums[type_.name].members)
        expected += f" ({', '.join(members)})"
    return EditError(
        "type_clash",
        f"{where} has type {expected} but got {shown(value)}: correct the value, use another field,"
        " or widen the field with widen_field",
    )


def _member(value: object, enumeration: Enumeration) -> EnumMember | None:
    if isinstance(value, EnumMember):
        is_member = value.member in dict(enumeration.members)
        return value if is_member and value.class_name == enumeration.name else None
    for name, member_value in enumeration.members:
        if type(member_value) is type(value) and member_value == value:
            return EnumMember(enumeration.name, name)
    if isinstance(value, str) and value in dict(enumeration.members):
        return EnumMember(enumeration.name, value)
    return None


def _none(value: object) -> None:
    return None


def _bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _int(value: object) -> int | None:
    if type(value) is not int or value.bit_length() > _MAX_BITS:
        return None
    return value


def _float(value: object) -> float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _int(value)


def _str(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return None
    return value


def _decimal(value: object) -> Decimal | None:
    if type(value) not in (int, float, str, Decimal):
        return None
    try:
        # Convert via a string, so that 0.1 does not become 0.1000000000000000055511151231...
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _date(value: object) -> datetime.date | None:
    if isinstance(value, str):
        return _parsed(datetime.date.fromisoformat, value) if _DATE.fullmatch(value) else None
    return value if type(value) is datetime.date else None


def _datetime(value: object) -> datetime.datetime | None:
    if isinstance(value, str):
        parse = datetime.datetime.fromisoformat
        return _parsed(parse, value) if _DATETIME.fullmatch(value) else None
    return value if isinstance(value, datetime.datetime) else None


def _time(value: object) -> datetime.time | None:
    if isinstance(value, str):
        return _parsed(datetime.time.fromisoformat, value) if _TIME.fullmatch(value) else None
    return value if isinstance(value, datetime.time) else None


def _partial_date(value: object) -> PartialDate | None:
    if type(value) in (int, datetime.date):
        value = str(value)
    if isinstance(value, str):
        return _parsed(PartialDate, value)
    return value if isinstance(value, PartialDate) else None


def _json(value: object) -> Value:
    return value if _is_json(value) else None  # type: ignore[return-value]


def _is_json(value: object) -> bool:
    match value:
        case None | bool():
            return True
        case dict():
            return all(_is_json(part) for pair in value.items() for part in pair)
        case list():
            return all(map(_is_json, value))
    return _str(value) is not None or _float(value) is not None


def _parsed(parse: Callable[[str], _Parsed], text: str) -> _Parsed | None:
    try:
        return parse(text)
    except ValueError:
        return None


_SCALARS: Mapping[str, Callable[[object], Value]] = {
    "None": _none,
    "object": _none,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _str,
    "decimal.Decimal": _decimal,
    "datetime.date": _date,
    "datetime.datetime": _datetime,
    "datetime.time": _time,
    "PartialDate": _partial_date,
    "Any": _json,
}

_NEVER = re.compile(r"(?!)")
_NUMBER = r"-?(?:0|[1-9][0-9]{0,300})"
# Texts that a caller may send for a scalar of another type, each with the function that reads them.
_TEXTS: Mapping[Type, tuple[re.Pattern[str], Callable[[str], object]]] = {
    Scalar("int"): (re.compile(_NUMBER), int),
    Scalar("float"): (re.compile(rf"{_NUMBER}(?:\.[0-9]{{1,300}})?"), float),
    Scalar("bool"): (re.compile("true|false"), "true".__eq__),
}
