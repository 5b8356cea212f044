"""Parsing a project's files using their syntax trees; nothing is executed."""

import ast
import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from memory.kernel.texts import docstring_of, parse_expression, parse_python
from memory.project.conform import normal_fields
from memory.project.errors import EditError, ProjectError
from memory.project.literals import LiteralError, call_fields, string_literal, value_from_node
from memory.project.outline import REQUIRED, Class, Default, Domain, Enumeration, Field
from memory.project.types import Named, dotted_name, parts, type_from_node
from memory.project.values import Record, Struct, Value, last_day_of
from sandbox_image.uac.records import LAPSES_AFTER

PIECE = 2048  # number of characters parsed at a time
_LAST_ARGUMENT = re.compile(r"sources=\(([0-9, ]+)\)\),?\Z")


@dataclass
class StateSource:
    """The contents of a state file or shard.

    `collections` maps each collection to its class, and `shards` maps each collection to the
    modules where its list continues. `records` maps each collection or singleton to its records by
    key.
    """

    collections: dict[str, str] = field(default_factory=dict)
    shards: dict[str, list[str]] = field(default_factory=dict)
    singletons: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, Record]] = field(default_factory=dict)


def parse_schema(path: str, source: str, name: str) -> Domain:
    """Parse the schema of the domain `name`; raises ProjectError if it is invalid."""
    body = _parse(path, source).body
    names = _imported_names(path, body, name)
    domain = Domain(name)
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.If():
                continue
            case ast.ClassDef(bases=[base]) if dotted_name(base) == "enum.Enum":
                domain = domain.with_enum(_enumeration(path, node))
            case ast.ClassDef():
                domain = domain.with_class(_class(path, node, names))
            case _ if not _is_docstring(node):
                raise ProjectError(
                    path, "a schema may contain only imports and classes", node.lineno
                )
    for class_ in domain.classes.values():
        for field_ in class_.fields:
            for part in parts(field_.type):
                if isinstance(part, Named) and not domain.has_part(part.name):
                    raise ProjectError(
                        path, f"{class_.name}.{field_.name}: {part.name} is not defined here"
                    )
    return domain


def parse_state(path: str, source: str, domain: Domain) -> StateSource:
    """Parse a domain's state file or shard; raises ProjectError if it is invalid."""
    body = _parse_lists(source) or _parse(path, source).body
    names = _imported_names(path, body, domain.name)
    state = StateSource()
    for node in body:
        try:
            match node:
                case ast.Import() | ast.ImportFrom():
                    continue
                case ast.AnnAssign(
                    target=ast.Name(id=name),
                    annotation=ast.Subscript(value=ast.Name(id="list"), slice=class_name),
                    value=ast.List(elts=items),
                ):
                    state.collections[name] = dotted_name(class_name)
                    state.shards[name] = []
                    records = state.records[name] = {}
                    for item in items:
                        if isinstance(item, ast.Starred):
                            state.shards[name].append(dotted_name(item.value))
                            continue
                        record = _record(item, names, domain)
                        if record.key in records:
                            raise ProjectError(
                                path, f"the key {record.key!r} occurs twice in {name}"
                            )
                        records[record.key] = record
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    record = _record(value, names, domain)
                    state.singletons[name] = record.class_name
                    state.records[name] = {record.key: record}
                case _ if not _is_docstring(node):
                    raise LiteralError(node, "a list of records or a record")
        except LiteralError as error:
            raise ProjectError(path, str(error), error.line) from None
    return state


def find_record(source: str, collection: str, key: str | None) -> str | None:
    """Return the line of a record in a state file that we rendered, without parsing the file.

    A key of None means the singleton that is called `collection`. The line begins at the record's
    arguments. Returns None if the file doesn't contain the record.
    """
    text = f"\n{source}"
    if key is None:
        start = text.find(f"\n{collection} = ")
        position = text.find("(", start) if start >= 0 else -1
    else:
        start = text.find(f"\n{collection}: list[")
        begin = text.find("\n", start + 1)
        if start < 0 or text[begin - 1] != "[":  # an empty list ends on its line
            return None
        end = text.find("\n]", begin)
        # Quotes within a string are escaped, so no text in a record can be mistaken for this.
        name = f"(key={string_literal(key)}"
        position = max(text.find(f"{name}{sign}", begin, end) for sign in ",)")
    if position < 0:
        return None
    return text[position : text.find("\n", position + 1)]


def sources_in(line: str) -> tuple[int, ...]:
    """Return a record's sources, given the line that `find_record` returned."""
    match = _LAST_ARGUMENT.search(line)
    return tuple(map(int, match[1].rstrip(",").split(","))) if match else ()


def last_day_in(line: str) -> datetime.date | None:
    """Return the last day on which a record holds, given the line that `find_record` returned."""
    if f"{LAPSES_AFTER}=" not in line:
        return None
    match parse_expression(f"record{line.removesuffix(',')}").body:
        case ast.Call(keywords=keywords):
            for one in keywords:
                if one.arg == LAPSES_AFTER:
                    return last_day_of(value_from_node(one.value, {}))
    return None


def documentation(source: str) -> str:
    """Return the first docstring line of a constraint's `check` or, failing that, of its module."""
    return docstring_of(parse_python(source)).strip().partition("\n")[0]


def imported_names(tree: ast.Module) -> set[str]:
    """Return the full names of the modules, and of what they contain, that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def uses_of_name(source: str, name: str) -> Iterator[int]:
    """Yield the lines where the source reads `.name` or passes `name` as a keyword argument."""
    for node in ast.walk(parse_python(source)):
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.lineno
        elif isinstance(node, ast.keyword) and node.arg == name:
            yield node.value.lineno


def _parse(path: str, source: str) -> ast.Module:
    try:
        return parse_python(source)
    except SyntaxError as error:
        raise ProjectError(path, f"invalid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProjectError(path, f"invalid Python: {error}") from None


def _parse_lists(source: str) -> list[ast.stmt]:
    """Parse a file whose lists are laid out as we render them, with one item per line.

    Python's parser holds the GIL until it finishes, which for a large file takes long enough to
    delay all other requests in the process. So pass it a few lines at a time. Returns an empty list
    if the layout differs or the source is not valid Python.
    """
    lines = source.split("\n")
    if len(source) <= PIECE or "]" not in lines:
        return []
    lists: dict[int, list[ast.expr]] = {}
    try:
        end = -1
        for number, line in enumerate(lines):
            if number > end and line.endswith(" = [") and line[0] != " ":
                end = lines.index("]", number)
                lists[number + 1] = _parse_items(lines, number + 1, end)
                lines[number : end + 1] = [f"{line}]", *[""] * (end - number)]
        body = parse_python("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in body:
        match node:
            case ast.AnnAssign(value=ast.List(elts=[]) as value) if node.lineno in lists:
                value.elts = lists.pop(node.lineno)
    return [] if lists else body  # any list that is left over is text inside a string


def _parse_items(lines: list[str], start: int, end: int) -> list[ast.expr]:
    """Parse these lines of a list, a few at a time; raises ValueError if they aren't list items.

    If a few lines end in the middle of an item or a string, they are not valid Python by
    themselves. A number appended on its own line reveals whether the lines before it end with a
    comma.
    """
    items: list[ast.expr] = []
    while start < end:
        stop, size = start, 0
        while stop < end and size < PIECE:
            size += len(lines[stop])
            stop += 1
        text = "\n".join(lines[start:stop])
        # Give the items the line numbers they have in the file.
        match parse_expression("\n" * (start - 1) + f"[\n{text}\n0]").body:
            case ast.List(elts=[*items_before, ast.Constant(value=0, col_offset=0)]):
                items += items_before
            case _:
                raise ValueError
        start = stop
    return items


def _imported_names(path: str, body: list[ast.stmt], domain: str) -> dict[str, str]:
    """Map imported names to the classes they refer to: "Passport", or "identity.Passport"."""
    names: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.If):
            if dotted_name(node.test) != "TYPE_CHECKING":
                raise ProjectError(
                    path, "a schema may contain only imports and classes", node.lineno
                )
            names |= _imported_names(path, node.body, domain)
        elif isinstance(node, ast.ImportFrom) and node.module:
            match node.module.split("."):
                case ["domains", origin, "schema"]:
                    prefix = "" if origin == domain else f"{origin}."
                    names |= {a.asname or a.name: f"{prefix}{a.name}" for a in node.names}
    return names


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _enumeration(path: str, node: ast.ClassDef) -> Enumeration:
    members: list[tuple[str, str | int]] = []
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constant = _value(path, value, {})
                if not isinstance(constant, str | int):
                    raise ProjectError(
                        path, "an enum's value must be text or a number", value.lineno
                    )
                members.append((name, constant))
            case _ if not _is_docstring(statement):
                raise ProjectError(path, "an enum may contain only members", statement.lineno)
    return Enumeration(node.name, tuple(members), ast.get_docstring(node) or "")


def _class(path: str, node: ast.ClassDef, names: Mapping[str, str]) -> Class:
    bases = [dotted_name(base) for base in node.bases]
    if bases not in ([], ["Record"]):
        raise ProjectError(path, f"class {node.name} may only extend Record", node.lineno)
    fields = []
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                try:
                    type_ = type_from_node(annotation, names)
                except EditError as error:
                    raise ProjectError(path, error.message, statement.lineno) from None
                fields.append(Field(name, type_, *_assigned(path, value, names)))
            case _ if not isinstance(statement, ast.Pass) and not _is_docstring(statement):
                raise ProjectError(path, "a class may contain only fields", statement.lineno)
    return Class(node.name, tuple(fields), bool(bases), ast.get_docstring(node) or "")


def _assigned(
    path: str, node: ast.expr | None, names: Mapping[str, str]
) -> tuple[Default, str | None]:
    """Return a field's default, and its name in the caller's data if that is another one."""
    if node is None:
        return REQUIRED, None
    if not isinstance(node, ast.Call) or not dotted_name(node.func).endswith("field"):
        return _value(path, node, names), None
    default: Default = REQUIRED
    original = None
    for keyword in node.keywords:
        match keyword:
            case ast.keyword(arg="default_factory", value=factory):
                default = {} if dotted_name(factory).endswith("dict") else []
            case ast.keyword(arg="default", value=value):
                default = _value(path, value, names)
            case ast.keyword(
                arg="metadata", value=ast.Dict(values=[ast.Constant(value=str(text))])
            ):
                original = text
    return default, original


def _value(path: str, node: ast.expr, names: Mapping[str, str]) -> Value:
    try:
        return value_from_node(node, names)
    except LiteralError as error:
        raise ProjectError(path, str(error), error.line) from None


def _record(node: ast.expr, names: Mapping[str, str], domain: Domain) -> Record:
    class_name = dotted_name(node.func) if isinstance(node, ast.Call) else ""
    class_ = domain.classes.get(names.get(class_name, class_name))
    if not isinstance(node, ast.Call) or class_ is None or not class_.is_record:
        raise LiteralError(node, f"a record in {domain.name}")
    key = ""
    sources: tuple[int, ...] = ()
    arguments = []
    for keyword in node.keywords:
        match keyword:
            case ast.keyword(arg="key", value=ast.Constant(value=str(key))):
                continue
            case ast.keyword(arg="sources", value=ast.Tuple(elts=numbers)):
                sources = tuple(_number(number) for number in numbers)
            case _:
                arguments.append(keyword)
    if not key:
        raise LiteralError(node, "a record with a key")
    call = ast.Call(func=node.func, args=node.args, keywords=arguments, lineno=node.lineno)
    fields = _normal(call_fields(call, names), class_, domain, node)
    return Record(class_.name, key, fields, sources)


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise LiteralError(node, "an entry number")


def _normal(
    fields: Mapping[str, Value], class_: Class, domain: Domain, node: ast.expr
) -> dict[str, Value]:
    """Return an object's fields in stored form; raises LiteralError if they don't fit its class."""
    unknown = fields.keys() - {field_.name for field_ in class_.fields}
    missing = {f.name for f in class_.fields if f.default is REQUIRED} - fields.keys()
    if unknown or missing:
        wrong = [f"without `{name}`" for name in sorted(unknown)]
        wrong += [f"including `{name}`" for name in sorted(missing)]
        raise LiteralError(node, f"the fields of {class_.name}, {', '.join(wrong)}")
    values = {name: _normal_value(value, domain, node) for name, value in fields.items()}
    return normal_fields(values, class_)


def _normal_value(value: Value, domain: Domain, node: ast.expr) -> Value:
    if isinstance(value, list):
        return [_normal_value(item, domain, node) for item in value]
    if isinstance(value, dict):
        return {key: _normal_value(item, domain, node) for key, item in value.items()}
    if isinstance(value, Struct):
        class_ = domain.classes.get(value.class_name)
        if class_ is None or class_.is_record:
            raise LiteralError(
                node, f"an object of a class in {domain.name} in place of {value.class_name}"
            )
        return replace(value, fields=_normal(value.fields, class_, domain, node))
    return value
