"""Field types: parsing, formatting and comparing them (a type may be wider than another)."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from memory.kernel.texts import parse_expression
from memory.project.errors import EditError


@dataclass(frozen=True)
class Scalar:
    """A scalar type such as `str` or `datetime.date`, `None`, or `object` for an unknown type."""

    name: str


@dataclass(frozen=True)
class Named:
    """An enum or a non-record class in the field's own domain."""

    name: str


@dataclass(frozen=True)
class RefTo:
    """A reference: `Ref[Passport]` or, for a class in another domain, `Ref[identity.Passport]`."""

    class_name: str


@dataclass(frozen=True)
class ListOf:
    """A list type: `list[element]`."""

    element: "Type"


@dataclass(frozen=True)
class MapOf:
    """A mapping type, `dict[str, value]`, for objects whose keys are data: dates, times, ids."""

    value: "Type"


@dataclass(frozen=True)
class Union:
    """A union of types, with `None` last. Create unions with `union`, which ensures this form."""

    members: tuple["Type", ...]


Type: TypeAlias = Scalar | Named | RefTo | ListOf | MapOf | Union

NONE = Scalar("None")
# The type of a field that has always been null so far, or of elements in a list that has always
# been empty. It includes no values, so the first value can still determine the type.
UNKNOWN = Scalar("object")
# Any JSON value as it was sent. Only `set_aside` has values of this type.
ANY = Scalar("Any")

_BUILTIN = ("str", "int", "float", "bool", "object")
_SCALARS = {
    **{name: name for name in (*_BUILTIN, "PartialDate", "None")},
    **{f"builtins.{name}": name for name in _BUILTIN},
    **{f"datetime.{name}": f"datetime.{name}" for name in ("date", "datetime", "time")},
    **{name: f"datetime.{name}" for name in ("date", "datetime", "time")},
    **dict.fromkeys(("decimal.Decimal", "Decimal"), "decimal.Decimal"),
    **dict.fromkeys(("Any", "typing.Any"), "Any"),
}
_LISTS = {"list", "builtins.list", "List", "typing.List"}
_MAPPINGS = {"dict", "builtins.dict", "Dict", "typing.Dict"}
_OPTIONALS = {"Optional", "typing.Optional"}
# How deep a field's value may be nested.
MAX_DEPTH = 10
# A type has up to two levels for each level of its values: a union, and a list or mapping.
MAX_TYPE_DEPTH = 2 * MAX_DEPTH + 2
MAX_LENGTH = 4000


def union(*alternatives: Type) -> Type:
    """Return the type of a value that has one of the given types."""
    members: list[Type] = []
    for alternative in alternatives:
        inner = alternative.members if isinstance(alternative, Union) else (alternative,)
        members += [member for member in inner if member not in members]
    if any(member not in (NONE, UNKNOWN) for member in members):
        members = [member for member in members if member != UNKNOWN]
    if NONE in members:
        members.remove(NONE)
        members.append(NONE)
    return members[0] if len(members) == 1 else Union(tuple(members))


def optional(type_: Type) -> Type:
    """Return the type, widened to allow None."""
    return union(type_, NONE)


def is_optional(type_: Type) -> bool:
    """Return whether a type allows None."""
    return type_ == NONE or (isinstance(type_, Union) and NONE in type_.members)


def without_none(type_: Type) -> Type:
    """Return the type without None."""
    if not isinstance(type_, Union):
        return type_
    return union(*(member for member in type_.members if member != NONE))


def members_of(type_: Type) -> tuple[Type, ...]:
    """Return a union's alternatives, or the type itself."""
    return type_.members if isinstance(type_, Union) else (type_,)


def is_wider(new: Type, old: Type) -> bool:
    """Return whether every value of `old` is also a value of `new`."""
    if old == UNKNOWN or new == old:
        return True
    if isinstance(old, Union) or isinstance(new, Union):
        return all(
            any(is_wider(alternative, member) for alternative in members_of(new))
            for member in members_of(old)
        )
    match new, old:
        case (ListOf(wide), ListOf(narrow)) | (MapOf(wide), MapOf(narrow)):
            return is_wider(wide, narrow)
    return new == Scalar("float") and old == Scalar("int")


def join(left: Type, right: Type) -> Type | None:
    """Return a type that includes all values of both types.

    Returns None if only a union of unlike types would do: such a union must be chosen explicitly
    rather than inferred.
    """
    if is_optional(left) or is_optional(right):
        core = join(without_none(left), without_none(right))
        return core and optional(core)
    if is_wider(left, right):
        return left
    if is_wider(right, left):
        return right
    match left, right:
        case ListOf(one), ListOf(other):
            element = join(one, other)
            return element and ListOf(element)
        case MapOf(one), MapOf(other):
            value = join(one, other)
            return value and MapOf(value)
    return None


def parts(type_: Type) -> Iterator[Type]:
    """Yield a type and, recursively, all the types it contains."""
    yield type_
    match type_:
        case ListOf(part) | MapOf(part):
            yield from parts(part)
        case Union(members):
            for member in members:
                yield from parts(member)


def classes_in(type_: Type) -> set[str]:
    """Return the names of the classes and enums in a type, including reference targets."""
    names = {part.name for part in parts(type_) if isinstance(part, Named)}
    return names | {part.class_name for part in parts(type_) if isinstance(part, RefTo)}


def bare_name(class_name: str) -> str:
    """Return "Passport" for "identity.Passport" and for "Passport"."""
    return class_name.rpartition(".")[2]


def map_names(
    type_: Type, *, named: Callable[[str], str] = str, ref: Callable[[str], str] = str
) -> Type:
    """Return the type with class names replaced using `named` or, in references, using `ref`."""
    match type_:
        case Named(name):
            return Named(named(name))
        case RefTo(name):
            return RefTo(ref(name))
        case ListOf(element):
            return ListOf(map_names(element, named=named, ref=ref))
        case MapOf(value):
            return MapOf(map_names(value, named=named, ref=ref))
        case Union(members):
            return union(*(map_names(member, named=named, ref=ref) for member in members))
    return type_


def format_type(type_: Type, names: Mapping[str, str] | None = None) -> str:
    """Return a type as Python source; `names` replaces the names of classes or builtins."""
    class_names = names or {}
    match type_:
        case Scalar(name) | Named(name):
            return class_names.get(name, name)
        case RefTo(name):
            return f"Ref[{class_names.get(name, name)}]"
        case ListOf(element):
            return f"{class_names.get('list', 'list')}[{format_type(element, class_names)}]"
        case MapOf(value):
            string = class_names.get("str", "str")
            return f"{class_names.get('dict', 'dict')}[{string}, {format_type(value, class_names)}]"
        case Union(members):
            return " | ".join(format_type(member, class_names) for member in members)


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Parse a type expression such as `list[Ref[Passport]] | None`; raises EditError."""
    return type_from_node(_expression(text))


def type_from_node(node: ast.expr, names: Mapping[str, str] | None = None, depth: int = 0) -> Type:  # noqa: C901 - one case for each kind
    """Return the type that a syntax tree represents.

    `names` maps imported class names to the classes they stand for ("identity.Passport").
    """
    if depth > MAX_TYPE_DEPTH:
        raise EditError(
            "bad_type", f"a type may be nested at most {MAX_TYPE_DEPTH} levels deep: define a class"
        )
    match node:
        case ast.Constant(value=None):
            return NONE
        case ast.Constant(value=str(quoted)):
            return type_from_node(_expression(quoted), names, depth + 1)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            # `a | b | c` is parsed as `(a | b) | c`; only the right side counts as a deeper level.
            return union(
                type_from_node(left, names, depth), type_from_node(right, names, depth + 1)
            )
        case ast.Subscript(value=base, slice=parameter):
            generic = dotted_name(base)
            if generic in _LISTS:
                return ListOf(type_from_node(parameter, names, depth + 1))
            if (
                generic in _MAPPINGS
                and isinstance(parameter, ast.Tuple)
                and len(parameter.elts) == 2
            ):
                key, value = [type_from_node(one, names, depth + 1) for one in parameter.elts]
                if key == Scalar("str"):
                    return MapOf(value)
            if generic in _OPTIONALS:
                return optional(type_from_node(parameter, names, depth + 1))
            target = dotted_name(parameter)
            if generic in {"Ref", "uac.Ref"} and target:
                return RefTo((names or {}).get(target, target))
    name = dotted_name(node)
    if name in _SCALARS:
        return Scalar(_SCALARS[name])
    if name and "." not in name and name not in _LISTS | _MAPPINGS | _OPTIONALS | {"Ref"}:
        return Named((names or {}).get(name, name))
    raise _refused(ast.unparse(node))


def dotted_name(node: ast.expr) -> str:
    """Return "a.b.c" for the expression `a.b.c`, and "" for any other kind of expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _expression(text: str) -> ast.expr:
    try:
        if len(text) <= MAX_LENGTH:
            return parse_expression(text.strip()).body
    except (SyntaxError, ValueError):
        pass
    raise _refused(text[:MAX_LENGTH])


def _refused(text: str) -> EditError:
    return EditError(
        "bad_type",
        f"{text!r} is not a valid field type: use str, int, float, bool, datetime.date,"
        " datetime.datetime, datetime.time, decimal.Decimal, PartialDate, an enum or dataclass of"
        " the domain, Ref[Class], list[...], dict[str, ...], or a union of these with |",
    )
