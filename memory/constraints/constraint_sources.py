"""Static analysis of a constraint's source: the severity of its alerts, and the data it reads.

Nothing is executed. Each source has either passed the gate or come with an imported project.
Invalid Python is treated as reading nothing.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from memory.kernel.texts import parse_valid
from memory.project import Domain, Outline
from memory.project.outline import Class, Field
from memory.project.types import is_optional

_STATE = re.compile(r"domains\.(\w+)\.state")
_CRITICAL = re.compile(r"\b(critical|CRITICAL)\b")


def may_be_critical(source: str) -> bool:
    """Return whether a constraint can yield critical alerts, which people may rely on."""
    return _CRITICAL.search(source) is not None


def collections_read(source: str) -> set[tuple[str, str]]:
    """Return the collections that a constraint imports, as (domain name, collection name) pairs."""
    return _imported(_statements(source))


@dataclass(frozen=True)
class Reads:
    """The collections that a constraint imports, and the names of all attributes it uses."""

    collections: Collection[tuple[str, str]]
    attributes: Collection[str]


def reads_of(source: str) -> Reads:
    """Return the collections and attributes that a constraint reads."""
    statements = _statements(source)
    return Reads(_imported(statements), {node.attr for node in _attributes(statements)})


def reads_field(reads: Reads, domain: Domain, class_: Class, field: str) -> bool:
    """Return whether a constraint may read this field.

    A constraint may read the field if it uses an attribute with the field's name and reads records
    of the class or, if the class only occurs inside other records, any records in the domain.
    """
    if field not in reads.attributes:
        return False
    held = {one.name: one.class_name for one in domain.collections.values()}
    held |= {one.name: one.class_name for one in domain.singletons.values()}
    read = {held.get(name) for owner, name in reads.collections if owner == domain.name}
    return bool(read) if not class_.is_record else class_.name in read


def optional_fields_at(
    source: str, line: int | None, outline: Outline
) -> list[tuple[Domain, Class, Field]]:
    """Return the optional fields that one line of a constraint reads, judging by names alone."""
    statements = _statements(source)
    names = {node.attr for node in _attributes(statements) if node.lineno == line}
    reads = Reads(_imported(statements), names)
    return [
        (domain, class_, field)
        for domain in outline.domains.values()
        for class_ in domain.classes.values()
        for field in class_.fields
        if is_optional(field.type) and reads_field(reads, domain, class_, field.name)
    ]


def _statements(source: str) -> list[ast.stmt]:
    module = parse_valid(source)
    return module.body if module else []


def _imported(statements: Iterable[ast.stmt]) -> set[tuple[str, str]]:
    imported = set()
    for node in statements:
        match node:
            case ast.ImportFrom(module=str(module)) if parts := _STATE.fullmatch(module):
                imported |= {(parts[1], one.name) for one in node.names}
    return imported


def _attributes(statements: Iterable[ast.stmt]) -> Iterator[ast.Attribute]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute):
                yield node
