"""Writes a user's classes as a module, which imports `userascode.schema`."""

import re
from collections import Counter
from collections.abc import Mapping

from userascode.models import Domain, State

HEAD = '''"""The classes and collections of version {version}. Written by `userascode pull`."""

from __future__ import annotations

import datetime
import decimal
import enum
from dataclasses import dataclass
from typing import Any

from userascode.schema import Collection, PartialDate, Record, Ref, Singleton
from userascode.schema import Memory as UserMemory
'''


def module_of(state: State) -> str:
    """Return a module with the classes and collections of a user."""
    names = _names_of_classes(state)
    parts = [HEAD.format(version=state.version).rstrip()]
    collections = Counter(
        name for domain in state.domains.values() for name in _collections_of(domain)
    )
    attributes = ""
    for domain_name, domain in state.domains.items():
        recorded = {class_name for _, class_name in _collections_of(domain).values()}
        for name, members in domain.enums.items():
            rows = [f"    {member} = {value!r}" for member, value in members.items()]
            parts.append("\n".join([f"class {names[domain_name, name]}(enum.Enum):", *rows]))
        for name, fields in domain.classes.items():
            base = "(Record)" if name in recorded else ""
            rows = [
                f"    {field}: {_annotation(type_, domain_name, names)}"
                for field, type_ in fields.items()
            ]
            head = f"@dataclass(kw_only=True)\nclass {names[domain_name, name]}{base}:"
            parts.append("\n".join([head, *(rows or ["    pass"])]))
        for name, (kind, class_name) in _collections_of(domain).items():
            attribute = name if collections[name] == 1 else f"{domain_name}_{name}"
            place = f"{domain_name}.{name}"
            attributes += f'    {attribute} = {kind}("{place}", {names[domain_name, class_name]})\n'
    head = 'class Memory(UserMemory):\n    """The records, by collection."""\n\n'
    return "\n\n\n".join([*parts, head + (attributes or "    pass\n")])


def _collections_of(domain: Domain) -> dict[str, tuple[str, str]]:
    """Return each collection and singleton with its kind and class."""
    return {
        **{name: ("Collection", size.class_) for name, size in domain.collections.items()},
        **{name: ("Singleton", class_name) for name, class_name in domain.singletons.items()},
    }


def _names_of_classes(state: State) -> dict[tuple[str, str], str]:
    """Return the name of each class in the module: with its domain if another has one like it."""
    used = Counter(
        name for domain in state.domains.values() for name in (*domain.classes, *domain.enums)
    )
    return {
        (domain_name, name): name if used[name] == 1 else f"{domain_name.title()}_{name}"
        for domain_name, domain in state.domains.items()
        for name in (*domain.classes, *domain.enums)
    }


def _annotation(text: str, domain: str, names: Mapping[tuple[str, str], str]) -> str:
    """Return a type as the module writes it, where classes of all domains stand together."""

    def renamed(match: re.Match[str]) -> str:
        other, _, name = match[0].rpartition(".")
        return names.get((other or domain, name), match[0])

    return re.sub(r"[\w.]+", renamed, text)
