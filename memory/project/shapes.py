"""Shapes: the records that workspace constraints need, matched against a user's project.

Users' projects differ, so a workspace constraint doesn't import any user's state. Instead, it
declares the *shape* of the records it works on, as record classes in its own module, and is given
the matching records. All of this is read from syntax trees and outlines; nothing is executed.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from memory.kernel.texts import parse_python
from memory.project.errors import EditError
from memory.project.outline import Class, Domain, Outline
from memory.project.outline import Field as UserField
from memory.project.types import (
    ANY,
    NONE,
    UNKNOWN,
    ListOf,
    MapOf,
    Named,
    RefTo,
    Scalar,
    Type,
    dotted_name,
    format_type,
    is_optional,
    members_of,
    parts,
    type_from_node,
    without_none,
)

# The parameters through which a check receives the date or time, and their types.
CLOCKS: Final = {"today": "datetime.date", "now": "datetime.datetime"}

_SEQUENCES = {"Sequence", "collections.abc.Sequence", "typing.Sequence"}
_RECORDS = {"Record", "uac.Record"}
_OWN_FIELDS = {"key", "sources"}  # every record has these fields
_PARAMETER = "write name: Sequence[Shape], where Shape is a record class in this file"
_ALSO = 'write ALSO = {"Medication": ("Prescription", "Drug"), "Medication.name": ("title",)}'


class ShapeError(Exception):
    """A constraint's source does not clearly declare what the constraint needs.

    The message names the line, the problem and the fix.
    """

    def __init__(self, line: int, message: str, fix: str) -> None:
        super().__init__(f"line {line}: {message}: {fix}")
        self.line = line
        self.message = message
        self.fix = fix


@dataclass(frozen=True)
class ShapeField:
    """A field in a shape. If it has a default, users' classes don't need to have such a field."""

    name: str
    type: Type
    has_default: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shape:
    """A record class declared by a constraint, and its alternative names in users' projects."""

    name: str
    fields: tuple[ShapeField, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A check's parameter `name: Sequence[Shape]`, which is optional if its default is `()`."""

    name: str
    shape: Shape
    has_default: bool = False


@dataclass(frozen=True)
class Needs:
    """The needs of a workspace constraint: records, and the date ("today") or the time ("now")."""

    parameters: tuple[Parameter, ...] = ()
    clock: Literal["today", "now"] | None = None


@dataclass(frozen=True)
class Match:
    """The result of matching a constraint's needs with a user's project.

    `bindings` maps each parameter to the collections and singletons whose records it gets, as JSON:
    `{"domain", "name", "class", "fields": {shape's field: user's field}, "not_none": shape's
    fields}`. The fields in `not_none` may be None in the user's records, but not in the shape: the
    shape's default replaces None, and records with None are left out if there is no default.
    `reasons` lists why the constraint does not apply; if it does apply, `notes` lists what is left
    out.
    """

    bindings: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Return whether all needs are met."""
        return not self.reasons


def needs_of(source: str) -> Needs:
    """Return the needs a workspace constraint declares; raises ShapeError if they are unclear."""
    try:
        body = parse_python(source).body
    except SyntaxError as error:
        raise ShapeError(
            error.lineno or 1, f"invalid Python: {error.msg}", "fix the syntax"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ShapeError(1, f"invalid Python: {error}", "write plain Python") from None
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    also = _also(body, classes)
    check = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
    if check is None:
        raise ShapeError(
            1, "check is missing", "define def check(today: datetime.date, …) -> Iterator[Alert]"
        )
    clock: Literal["today", "now"] | None = None
    parameters: list[Parameter] = []
    for argument, default in _arguments(check):
        match argument.arg:
            case "today" | "now" as name:
                _check_clock(argument, default, clock)
                clock = name
            case _:
                parameters.append(_parameter(argument, default, classes, also))
    _check_all_used(classes, parameters)
    return Needs(tuple(parameters), clock)


def match(needs: Needs, outline: Outline) -> Match:
    """Return which of a user's records a constraint gets, or why the constraint does not apply."""
    bindings: dict[str, list[dict[str, Any]]] = {}
    reasons: list[str] = []
    notes: list[str] = []
    for parameter in needs.parameters:
        candidates = list(_candidates(parameter.shape, outline))
        bindings_of: list[dict[str, Any]] = []
        fits = False
        problems: list[str] = []
        for domain, class_ in candidates:
            fields, wrong, left_out = _fit(parameter.shape, domain, class_)
            problems += wrong
            if wrong:
                continue
            fits = True
            notes += left_out
            bindings_of += _places(parameter.shape, domain, class_, fields)
        if not candidates:
            problems = [f"no class {_alternatives(parameter.shape.name, *parameter.shape.also)}"]
        if fits or parameter.has_default:
            bindings[parameter.name] = bindings_of
            notes += problems
        else:
            reasons += problems
    if reasons:
        bindings = {}
    return Match(bindings, tuple(dict.fromkeys(reasons)), tuple(dict.fromkeys(notes)))


# Parsing the declarations.


def _arguments(check: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    arguments = check.args
    for starred in (arguments.vararg, arguments.kwarg):
        if starred is not None:
            raise ShapeError(starred.lineno, f"check takes *{starred.arg}", _PARAMETER)
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    yield from zip(positional, [*[None] * missing, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)


def _check_clock(argument: ast.arg, default: ast.expr | None, other: str | None) -> None:
    name = argument.arg
    if other is not None:
        raise ShapeError(
            argument.lineno,
            "check takes both today and now",
            "take now, and use now.date() for the user's day",
        )
    if default is not None:
        raise ShapeError(argument.lineno, f"{name} has a default", f"write {name}: {CLOCKS[name]}")
    if argument.annotation is None or dotted_name(argument.annotation) not in (
        CLOCKS[name],
        CLOCKS[name].partition(".")[2],
    ):
        raise ShapeError(
            argument.lineno, f"{name} has the wrong type", f"write {name}: {CLOCKS[name]}"
        )


def _parameter(
    argument: ast.arg,
    default: ast.expr | None,
    classes: Mapping[str, ast.ClassDef],
    also: Mapping[str, tuple[str, ...]],
) -> Parameter:
    name, line = argument.arg, argument.lineno
    if argument.annotation is None:
        raise ShapeError(line, f"the parameter {name} has no type", _PARAMETER)
    match argument.annotation:
        case ast.Subscript(value=sequence, slice=ast.Name(id=class_name)) if (
            dotted_name(sequence) in _SEQUENCES
        ):
            pass
        case other:
            raise ShapeError(
                line, f"the parameter {name} has the type {ast.unparse(other)}", _PARAMETER
            )
    if class_name not in classes:
        raise ShapeError(
            line,
            f"the parameter {name} needs {class_name}, which is not a class in this file",
            f"define class {class_name}(Record) with the fields that the check reads",
        )
    if default is not None and not (isinstance(default, ast.Tuple) and not default.elts):
        raise ShapeError(
            line,
            f"the parameter {name} has the default {ast.unparse(default)}",
            "give it the default () if users do not need such a class, or no default",
        )
    return Parameter(name, _shape(classes[class_name], also), default is not None)


def _shape(node: ast.ClassDef, also: Mapping[str, tuple[str, ...]]) -> Shape:
    head = f"write @dataclass(kw_only=True) and class {node.name}(Record):"
    if len(node.bases) != 1 or dotted_name(node.bases[0]) not in _RECORDS:
        raise ShapeError(node.lineno, f"class {node.name} does not extend Record alone", head)
    if [ast.unparse(one) for one in node.decorator_list] not in (
        ["dataclass(kw_only=True)"],
        ["dataclasses.dataclass(kw_only=True)"],
    ):
        raise ShapeError(node.lineno, f"class {node.name} is not a keyword-only dataclass", head)
    fields: dict[str, ShapeField] = {}
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if name in _OWN_FIELDS or name in fields:
                    raise ShapeError(
                        statement.lineno,
                        f"{node.name}.{name} already exists",
                        "remove it: every record has key and sources, and a field can be"
                        " declared only once",
                    )
                type_ = _type(annotation, f"{node.name}.{name}")
                names = also.get(f"{node.name}.{name}", ())
                fields[name] = ShapeField(name, type_, value is not None, names)
            case ast.FunctionDef() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise ShapeError(
                    statement.lineno,
                    f"class {node.name} contains {ast.unparse(statement)[:60]!r}",
                    "write fields with their types, such as name: str",
                )
    return Shape(node.name, tuple(fields.values()), also.get(node.name, ()))


def _type(annotation: ast.expr, where: str) -> Type:
    fix = (
        "use str, int, float, bool, datetime.date, datetime.datetime, datetime.time,"
        " decimal.Decimal, PartialDate, a list[…] of these, or a union of them with |"
    )
    try:
        type_ = type_from_node(annotation)
    except EditError:
        type_ = None
    if (
        type_ is None
        or type_ == NONE
        or any(isinstance(part, Named | RefTo | MapOf) for part in parts(type_))
        or not {UNKNOWN, ANY}.isdisjoint(parts(type_))
    ):
        raise ShapeError(
            annotation.lineno,
            f"{where} has the type {ast.unparse(annotation)[:60]}, which no user's data can match",
            fix,
        )
    return type_


def _also(body: list[ast.stmt], classes: Mapping[str, ast.ClassDef]) -> dict[str, tuple[str, ...]]:
    alternatives: dict[str, tuple[str, ...]] = {}
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="ALSO")], value=value)
                | ast.AnnAssign(target=ast.Name(id="ALSO"), value=value)
            ):
                pass
            case _:
                continue
        if alternatives:
            raise ShapeError(
                node.lineno, "ALSO is assigned twice", "combine both in one assignment"
            )
        if not isinstance(value, ast.Dict):
            raise ShapeError(node.lineno, "ALSO is not a dict", _ALSO)
        for key, names in zip(value.keys, value.values, strict=True):
            line = names.lineno
            match key:
                case ast.Constant(value=str(what)) if what not in alternatives:
                    pass
                case None | ast.expr():
                    written = "**" if key is None else ast.unparse(key)
                    raise ShapeError(line, f"ALSO has the key {written}", _ALSO)
            if not _is_declared(what, classes):
                raise ShapeError(
                    line,
                    f"ALSO names {what!r}, which is not a class or field in this file",
                    "name a class as 'Medication', and a field as 'Medication.name'",
                )
            match names:
                case ast.Tuple(elts=items) | ast.List(elts=items):
                    pass
                case _:
                    items = []
            texts = [
                one.value
                for one in items
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            if not texts or len(texts) != len(items) or not all(t.isidentifier() for t in texts):
                raise ShapeError(
                    line,
                    f"ALSO[{what!r}] is {ast.unparse(names)[:60]}, not a tuple of names",
                    _ALSO,
                )
            alternatives[what] = tuple(texts)
    return alternatives


def _is_declared(what: str, classes: Mapping[str, ast.ClassDef]) -> bool:
    class_name, _, field_name = what.partition(".")
    if class_name not in classes:
        return False
    return not field_name or any(
        isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and one.target.id == field_name
        for one in classes[class_name].body
    )


def _check_all_used(classes: Mapping[str, ast.ClassDef], parameters: list[Parameter]) -> None:
    used = {parameter.shape.name for parameter in parameters}
    for name, node in classes.items():
        # Classes other than record classes are the constraint's own helpers.
        is_record = any(dotted_name(base) in _RECORDS for base in node.bases)
        if is_record and name not in used:
            raise ShapeError(
                node.lineno,
                f"no parameter of check takes {name}",
                f"add a parameter of the type Sequence[{name}], or remove the class",
            )
    if not parameters:
        raise ShapeError(1, "check takes no records", _PARAMETER)


# Matching the declared shapes against a user's classes.


def _candidates(shape: Shape, outline: Outline) -> Iterator[tuple[Domain, Class]]:
    names = {_plain(name) for name in (shape.name, *shape.also)}
    for domain in outline.domains.values():
        for class_ in domain.classes.values():
            if _plain(class_.name) in names:
                yield domain, class_


def _fit(
    shape: Shape, domain: Domain, class_: Class
) -> tuple[dict[str, UserField], list[str], list[str]]:
    """Return the class's fields by shape field name, the problems, and what is left out."""
    where = f"{domain.name}.{class_.name}"
    if not class_.is_record:
        return {}, [f"{where} is not a record class"], []
    fields: dict[str, UserField] = {}
    wrong: list[str] = []
    left_out: list[str] = []
    for wanted in shape.fields:
        named = list(_named(wanted, class_))
        fitting = next((one for one in named if _fits(one.type, wanted.type, domain)), None)
        if fitting is not None:
            fields[wanted.name] = fitting
            may_be_none = is_optional(fitting.type) and not is_optional(wanted.type)
            if may_be_none and not wanted.has_default:
                left_out.append(f"{where} records without {fitting.name} are left out")
            continue
        problem = [
            f"{where}.{one.name} is {format_type(one.type)}, not {format_type(wanted.type)}"
            for one in named
        ]
        if wanted.has_default:
            left_out += [f"{one}: this field is not used" for one in problem]
        else:
            missing = f"{where} has no field {_alternatives(wanted.name, *wanted.also)}"
            wrong += problem or [missing]
    return fields, wrong, left_out


def _named(wanted: ShapeField, class_: Class) -> Iterator[UserField]:
    """Yield the class's fields whose names match the shape's field, exact matches first."""
    for name in (wanted.name, *wanted.also):
        alike = [one for one in class_.fields if _plain(one.name) == _plain(name)]
        yield from sorted(alike, key=lambda one: one.name != name)


def _fits(user: Type, shape: Type, domain: Domain) -> bool:
    """Return whether all of a user field's values, except None, are valid for the shape's field."""
    alternatives = members_of(shape)
    return all(
        member in (NONE, UNKNOWN)
        or any(_fits_one(member, alternative, domain) for alternative in alternatives)
        for member in members_of(user)
    )


def _fits_one(user: Type, shape: Type, domain: Domain) -> bool:
    match user, shape:
        case ListOf(element), ListOf(wanted):
            # Lists that may contain None or enum members don't fit, since the list in every record
            # would have to be checked.
            plain = not is_optional(element) or is_optional(wanted)
            return (
                plain
                and not isinstance(without_none(element), Named)
                and _fits(element, wanted, domain)
            )
        case Named(name), Scalar("str") if name in domain.enums:
            return all(isinstance(value, str) for _, value in domain.enums[name].members)
        case Scalar("int"), Scalar("float"):
            return True
    return user == shape


def _places(
    shape: Shape, domain: Domain, class_: Class, fields: Mapping[str, UserField]
) -> Iterator[dict[str, Any]]:
    not_none = [
        wanted.name
        for wanted in shape.fields
        if wanted.name in fields
        and is_optional(fields[wanted.name].type)
        and not is_optional(wanted.type)
    ]
    for holder in domain.holders.values():
        if holder.class_name == class_.name:
            yield {
                "domain": domain.name,
                "name": holder.name,
                "class": class_.name,
                "fields": {name: one.name for name, one in fields.items()},
                "not_none": not_none,
            }


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()


def _alternatives(*names: str) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} or {last}" if most else last
