"""Rendering a project's files: the same content always yields the same canonical text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from memory.project.literals import Uses, literal, record_literal, string_literal
from memory.project.names import unused
from memory.project.outline import REQUIRED, Class, Collection, Domain, Enumeration, Field
from memory.project.types import (
    ListOf,
    MapOf,
    RefTo,
    Scalar,
    bare_name,
    classes_in,
    format_type,
    parts,
)
from memory.project.values import Record

FileRecords: TypeAlias = Mapping[str, Mapping[str, Record]]
"""The contents of a state or shard file: each collection's or singleton's records, by key."""

_SHADOWABLE = ("str", "int", "float", "bool", "object", "list", "dict")


@dataclass
class _Imports:
    """The import lines at the top of a file."""

    modules: set[str] = field(default_factory=set)
    names: dict[str, set[str]] = field(default_factory=dict)

    def add(self, module: str, name: str, alias: str = "") -> None:
        written = f"{name} as {alias}" if alias and alias != name else name
        self.names.setdefault(module, set()).add(written)

    def lines(self) -> list[str]:
        plain = [f"import {module}" for module in sorted(self.modules)]
        return plain + [
            f"from {module} import {', '.join(sorted(names))}"
            for module, names in sorted(self.names.items())
        ]


def record_size(record: Record) -> int:
    """Return how many bytes a record takes up in its file."""
    return len(f"    {record_literal(record, Uses())},\n".encode())


def render_state(domain: Domain, path: str, records: FileRecords) -> str:
    """Return the text of a domain's state.py or one of its shards."""
    uses = Uses()
    body = _state_body(domain, path, records, uses)
    aliases = _aliases(uses.classes)
    if aliases:
        uses = Uses(aliases=aliases)
        body = _state_body(domain, path, records, uses)
    imports = _Imports(modules=uses.modules)
    for name in uses.library:
        imports.add("uac", name)
    for class_name in uses.classes:
        prefix, _, bare = class_name.rpartition(".")
        imports.add(f"domains.{prefix or domain.name}.schema", bare, uses.name_of(class_name))
    if path == domain.state_path:
        for collection in domain.collections.values():
            for name in _shard_names(collection):
                imports.add(f"domains.{domain.name}.{name}", collection.name, name)
    return _file(imports.lines(), body)


def render_state_stub(domain: Domain) -> str:
    """Return the part of state.py that a type checker needs: names and classes, but no records.

    The stub is a few lines long, no matter how many records there are.
    """
    held = [(c.name, c.class_name, True) for c in domain.collections.values()]
    held += [(s.name, s.class_name, False) for s in domain.singletons.values()]
    classes = {class_name for _, class_name, _ in held}
    uses = Uses(aliases=_aliases(sorted(classes)))
    imports = _Imports()
    for class_name in classes:
        prefix, _, bare = class_name.rpartition(".")
        imports.add(f"domains.{prefix or domain.name}.schema", bare, uses.name_of(class_name))
    lines = [
        f"{name}: {f'list[{uses.name_of(class_name)}]' if many else uses.name_of(class_name)}\n"
        for name, class_name, many in held
    ]
    return _file(imports.lines(), lines, gap="")


def _aliases(class_names: Iterable[str]) -> dict[str, str]:
    """Return aliases for other domains' classes if their unqualified names are ambiguous here."""
    taken = [bare_name(name) for name in class_names]
    return {
        name: name.replace(".", "_")
        for name in class_names
        if "." in name and taken.count(bare_name(name)) > 1
    }


def _state_body(domain: Domain, path: str, records: FileRecords, uses: Uses) -> list[str]:
    blocks = []
    for collection in domain.collections.values():
        if any(shard.path == path for shard in collection.shards):
            items = [record_literal(r, uses) for r in records.get(collection.name, {}).values()]
            if path == domain.state_path:
                items += [f"*{name}" for name in _shard_names(collection)]
            annotation = f"list[{uses.name_of(collection.class_name)}]"
            lines = "".join(f"    {item},\n" for item in items)
            value = f"[\n{lines}]" if items else "[]"
            blocks.append(f"{collection.name}: {annotation} = {value}\n")
    if path == domain.state_path:
        for singleton in domain.singletons.values():
            (record,) = records[singleton.name].values()
            blocks.append(f"{singleton.name} = {record_literal(record, uses)}\n")
    return blocks


def _shard_names(collection: Collection) -> list[str]:
    return [shard.path.rpartition("/")[2].removesuffix(".py") for shard in collection.shards[1:]]


def _file(imports: list[str], blocks: list[str], gap: str = "\n") -> str:
    if not blocks:
        return ""
    head = "\n".join(imports)
    return (f"{head}\n{gap}" if head else "") + gap.join(blocks)


def render_schema(domain: Domain) -> str:
    """Return a domain's schema.py: enums first, then classes, each in definition order.

    A reference to a class that is defined further down or in another domain is written in quotes,
    and any import that the reference needs is for the type checker only. So neither the order of
    classes nor a reference cycle can break an import.
    """
    imports, quoted = _Imports(), _Imports()
    blocks = [_render_enum(enumeration) for enumeration in domain.enums.values()]
    if domain.enums:
        imports.modules.add("enum")
    defined = set(domain.enums)
    for class_ in domain.classes.values():
        blocks.append(_render_class(class_, domain, defined, imports, quoted))
        defined.add(class_.name)
    lines = imports.lines()
    if quoted.names:
        imports.add("typing", "TYPE_CHECKING")
        lines = [*imports.lines(), "", "if TYPE_CHECKING:"]
        lines += [f"    {line}" for line in quoted.lines()]
    return _file(lines, blocks, gap="\n\n")


def _render_enum(enumeration: Enumeration) -> str:
    lines = [f"    {name} = {literal(value)}" for name, value in enumeration.members]
    return _class_block(f"class {enumeration.name}(enum.Enum):", enumeration.doc, lines)


def _render_class(
    class_: Class, domain: Domain, defined: set[str], imports: _Imports, quoted: _Imports
) -> str:
    imports.add("dataclasses", "dataclass")
    if class_.is_record:
        imports.add("uac", "Record")
    names = _names_in_body(class_, domain)
    lines = []
    for field_ in class_.fields:
        mentioned = classes_in(field_.type)
        for class_name in mentioned & names.keys():
            prefix, _, bare = class_name.rpartition(".")
            module = f"domains.{prefix or domain.name}.schema"
            quoted.add(module, bare, names[class_name])
        _import_parts(field_, names, imports)
        annotation = format_type(field_.type, names)
        if mentioned - defined or mentioned & names.keys():
            annotation = f'"{annotation}"'
        lines.append(f"    {field_.name}: {annotation}{_default(field_, names, imports)}")
    base = "(Record)" if class_.is_record else ""
    head = f"@dataclass(kw_only=True)\nclass {class_.name}{base}:"
    return _class_block(head, class_.doc, lines)


def _class_block(head: str, doc: str, lines: list[str]) -> str:
    body = [f'    """{string_literal(doc)[1:-1]}"""'] if doc else []
    if doc and lines:
        body.append("")
    body += lines
    return "\n".join([head, *(body or ["    pass"])]) + "\n"


def _names_in_body(class_: Class, domain: Domain) -> dict[str, str]:
    """Return aliases for the type names that are ambiguous or shadowed in a class's annotations.

    Inside the class, a field shadows a type of the same name, and the unqualified name of another
    domain's class may be ambiguous.
    """
    fields = {field_.name for field_ in class_.fields}
    names = {name: f"builtins.{name}" for name in _SHADOWABLE if name in fields}
    foreign = {name for name in _mentioned(domain.classes.values()) if "." in name}
    taken = [*domain.enums, *domain.classes, *(bare_name(name) for name in foreign)]
    for name in _mentioned([class_]):
        prefix, _, bare = name.rpartition(".")
        if bare in fields or (prefix and taken.count(bare) > 1):
            names[name] = unused(f"{prefix or domain.name}_{bare}", fields)
        elif prefix:
            names[name] = bare
    return names


def _mentioned(classes: Iterable[Class]) -> set[str]:
    return {name for c in classes for field_ in c.fields for name in classes_in(field_.type)}


def _default(field_: Field, names: Mapping[str, str], imports: _Imports) -> str:
    arguments = []
    match field_.default:
        case list():
            arguments.append(f"default_factory={names.get('list', 'list')}")
        case dict():
            arguments.append(f"default_factory={names.get('dict', 'dict')}")
        case default if default is not REQUIRED:
            uses = Uses()
            text = literal(default, uses)
            imports.modules |= uses.modules
            for name in uses.library:
                imports.add("uac", name)
            if field_.original is None:
                return f" = {text}"
            arguments.append(f"default={text}")
    if field_.original is not None:
        arguments.append(f'metadata={{"name": {string_literal(field_.original)}}}')
    if not arguments:
        return ""
    imports.modules.add("dataclasses")
    return f" = dataclasses.field({', '.join(arguments)})"


def _import_parts(field_: Field, names: Mapping[str, str], imports: _Imports) -> None:
    for part in parts(field_.type):
        match part:
            case RefTo():
                imports.add("uac", "Ref")
            case Scalar("PartialDate"):
                imports.add("uac", "PartialDate")
            case Scalar(name) if "." in names.get(name, name):
                imports.modules.add(names.get(name, name).partition(".")[0])
            case Scalar("Any"):
                imports.add("typing", "Any")
            case ListOf() if "list" in names:
                imports.modules.add("builtins")
            case MapOf() if {"dict", "str"} & names.keys():
                imports.modules.add("builtins")
