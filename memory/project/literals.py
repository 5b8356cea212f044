"""Values as Python source: rendering values as canonical text, and parsing that text.

Parsing uses the syntax tree; nothing is ever executed.
"""

import ast
import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from memory.kernel.texts import parse_expression
from memory.project.types import bare_name, dotted_name
from memory.project.values import EnumMember, PartialDate, Record, Ref, Struct, Value

# Characters that are invisible, end a line, or reorder text in an editor. This is a fixed list
# rather than `str.isprintable`, so that all Python versions write the same bytes.
_INVISIBLE = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\ufff9-\uffff"
    "\ud800-\udfff\U000e0000-\U0010ffff]"
)
_quoted = json.JSONEncoder(ensure_ascii=False).encode


@dataclass
class Uses:
    """The names used by a piece of source, collected while the source is generated.

    `classes` holds "Trip" for a class in the same domain and "identity.Passport" for a class in
    another domain; `aliases` maps some of these names to the aliases to write instead.
    """

    modules: set[str] = field(default_factory=set)
    library: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, class_name: str) -> str:
        """Return the name to write for a class, and record that it is used."""
        self.classes.add(class_name)
        return self.aliases.get(class_name) or bare_name(class_name)


class LiteralError(ValueError):
    """An expression is not a valid value in a project; `line` is its line number, if known."""

    def __init__(self, node: ast.AST, expected: str) -> None:
        text = ast.unparse(node)
        super().__init__(f"expected {expected}, not `{text[:80]}`")
        self.line: int | None = getattr(node, "lineno", None)


def literal(value: Value, uses: Uses | None = None) -> str:
    """Return a value as Python source; two values are the `same` if their source is identical."""
    return _WRITERS[type(value)](value, uses or Uses())


def record_literal(record: Record, uses: Uses) -> str:
    """Return a record as Python source: a call to its class, key first and sources last."""
    parts = [f"key={string_literal(record.key)}", *_arguments(record.fields, uses)]
    if record.sources:
        comma = "," if len(record.sources) == 1 else ""
        parts.append(f"sources=({', '.join(map(str, record.sources))}{comma})")
    return f"{uses.name_of(record.class_name)}({', '.join(parts)})"


def same(left: object, right: Value) -> bool:
    """Return whether two values are equal and of the same type (1 is neither 1.0 nor True)."""
    if type(left) is not type(right):
        return False
    return left is None or literal(left) == literal(right)


def string_literal(text: str) -> str:
    """Return a string in double quotes, with all invisible characters escaped."""
    return _INVISIBLE.sub(_escape, _quoted(text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _arguments(fields: Mapping[str, Value], uses: Uses) -> list[str]:
    return [f"{name}={_WRITERS[type(value)](value, uses)}" for name, value in fields.items()]


def _plain(value: Any, uses: Uses) -> str:
    return repr(value)


def _string(value: str, uses: Uses) -> str:
    return string_literal(value)


def _decimal(value: Decimal, uses: Uses) -> str:
    uses.modules.add("decimal")
    return f'decimal.Decimal("{value}")'


def _date(value: datetime.date, uses: Uses) -> str:
    uses.modules.add("datetime")
    return f"datetime.date({value.year}, {value.month}, {value.day})"


def _clock(value: datetime.datetime | datetime.time) -> list[str]:
    parts = [str(value.hour), str(value.minute)]
    if value.second or value.microsecond:
        parts.append(str(value.second))
    if value.microsecond:
        parts.append(str(value.microsecond))
    offset = value.utcoffset()
    if offset == datetime.timedelta(0):
        parts.append("tzinfo=datetime.timezone.utc")
    elif offset is not None:
        seconds = int(offset.total_seconds())
        parts.append(f"tzinfo=datetime.timezone(datetime.timedelta(seconds={seconds}))")
    return parts


def _datetime(value: datetime.datetime, uses: Uses) -> str:
    uses.modules.add("datetime")
    parts = [str(value.year), str(value.month), str(value.day), *_clock(value)]
    return f"datetime.datetime({', '.join(parts)})"


def _time(value: datetime.time, uses: Uses) -> str:
    uses.modules.add("datetime")
    return f"datetime.time({', '.join(_clock(value))})"


def _partial_date(value: PartialDate, uses: Uses) -> str:
    uses.library.add("PartialDate")
    return f'PartialDate("{value.text}")'


def _enum_member(value: EnumMember, uses: Uses) -> str:
    return f"{uses.name_of(value.class_name)}.{value.member}"


def _ref(value: Ref, uses: Uses) -> str:
    uses.library.add("Ref")
    return f"Ref[{uses.name_of(value.class_name)}]({string_literal(value.key)})"


def _struct(value: Struct, uses: Uses) -> str:
    return f"{uses.name_of(value.class_name)}({', '.join(_arguments(value.fields, uses))})"


def _list(value: list[Value], uses: Uses) -> str:
    return f"[{', '.join([_WRITERS[type(item)](item, uses) for item in value])}]"


def _dict(value: dict[str, Value], uses: Uses) -> str:
    items = [
        f"{string_literal(key)}: {_WRITERS[type(item)](item, uses)}" for key, item in value.items()
    ]
    return f"{{{', '.join(items)}}}"


_WRITERS: Mapping[type, Callable[[Any, Uses], str]] = {
    **dict.fromkeys((type(None), bool, int, float), _plain),
    str: _string,
    Decimal: _decimal,
    datetime.date: _date,
    datetime.datetime: _datetime,
    datetime.time: _time,
    PartialDate: _partial_date,
    EnumMember: _enum_member,
    Ref: _ref,
    Struct: _struct,
    list: _list,
    dict: _dict,
}


def parse_literal(text: str) -> Value:
    """Parse a value whose source uses no imported classes."""
    return value_from_node(parse_expression(text).body, {})


def value_from_node(node: ast.expr, names: Mapping[str, str]) -> Value:
    """Return the value a syntax tree represents; raises LiteralError if it isn't a valid value.

    `names` maps imported class names to the classes they stand for ("identity.Passport").
    """
    match node:
        case ast.Constant(value=(None | str() | int() | float()) as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=(int() | float()) as value)):
            return -value
        case ast.List(elts=items):
            return [value_from_node(item, names) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {
                _string_key(key, node): value_from_node(value, names)
                for key, value in zip(keys, values, strict=True)
            }
        case ast.Call():
            return _value_from_call(node, names)
        case ast.Attribute(value=ast.Name(id=class_name), attr=member):
            return EnumMember(names.get(class_name, class_name), member)
    raise LiteralError(node, "a value")


def call_fields(node: ast.Call, names: Mapping[str, str]) -> dict[str, Value]:
    """Return the keyword argument values of a dataclass call."""
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise LiteralError(node, "keyword arguments only")
    return {
        keyword.arg: value_from_node(keyword.value, names)
        for keyword in node.keywords
        if keyword.arg
    }


def _value_from_call(node: ast.Call, names: Mapping[str, str]) -> Value:
    if isinstance(node.func, ast.Subscript):
        target = dotted_name(node.func.slice)
        if dotted_name(node.func.value) != "Ref" or not target:
            raise LiteralError(node, "a reference")
        return Ref(names.get(target, target), _only_string(node))
    name = dotted_name(node.func)
    try:
        match name:
            case "datetime.date":
                return datetime.date(*_numbers(node.args, at_most=3))
            case "datetime.datetime":
                moment = datetime.datetime(*_numbers(node.args, at_most=7))  # noqa: DTZ001 (set below)
                return moment.replace(tzinfo=_time_zone(node))
            case "datetime.time":
                time = datetime.time(*_numbers(node.args, at_most=4))
                return time.replace(tzinfo=_time_zone(node))
            case "decimal.Decimal":
                return Decimal(_only_string(node))
            case "PartialDate":
                return PartialDate(_only_string(node))
    except (ValueError, TypeError, ArithmeticError):
        raise LiteralError(node, "a valid date or number") from None
    if not name or "." in name:
        raise LiteralError(node, "a class in the domain")
    return Struct(names.get(name, name), call_fields(node, names))


def _numbers(nodes: Sequence[ast.expr], at_most: int) -> Iterator[Any]:
    if len(nodes) > at_most:
        raise LiteralError(nodes[-1], f"at most {at_most} numbers")
    for node in nodes:
        value = value_from_node(node, {})
        if type(value) is not int:
            raise LiteralError(node, "a whole number")
        yield value


def _string_key(key: ast.expr | None, node: ast.expr) -> str:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    raise LiteralError(key or node, "a key in quotes")


def _only_string(node: ast.Call) -> str:
    if len(node.args) == 1 and not node.keywords:
        value = value_from_node(node.args[0], {})
        if isinstance(value, str):
            return value
    raise LiteralError(node, "one string")


def _time_zone(node: ast.Call) -> datetime.timezone | None:
    match node.keywords:
        case []:
            return None
        case [ast.keyword(arg="tzinfo", value=zone)]:
            match zone:
                case ast.Attribute() if dotted_name(zone) == "datetime.timezone.utc":
                    return datetime.timezone.utc  # noqa: UP017
                case ast.Call(
                    args=[ast.Call(keywords=[ast.keyword(arg="seconds", value=seconds)])]
                ):
                    return datetime.timezone(
                        datetime.timedelta(seconds=next(_numbers([seconds], 1)))
                    )
    raise LiteralError(node, "a time zone with a fixed offset")
