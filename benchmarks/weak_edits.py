"""Build edits of the true state in the form in which a language model writes them."""

from collections.abc import Mapping
from typing import Any

from benchmarks.weak_state import COLLECTIONS, TRUE


def _at(kind: str, key: str) -> dict[str, Any]:
    domain = next(domain for domain, name, _, _ in TRUE if name == kind)
    return {"domain": domain, "collection": COLLECTIONS[kind], "key": key}


def update_record(kind: str, key: str, **fields: Any) -> dict[str, Any]:
    """Return an edit that changes fields of a true record."""
    return {"op": "update", **_at(kind, key), "fields": fields}


def retire_record(kind: str, key: str) -> dict[str, Any]:
    """Return an edit that retires a true record."""
    return {"op": "retire", **_at(kind, key), "reason": "it no longer holds"}


def add_record(kind: str, key: str, **fields: Any) -> dict[str, Any]:
    """Return an edit that adds a record to the domain of its class."""
    domain = _at(kind, key)["domain"]
    return {"op": "add", "domain": domain, "class_name": kind, "key": key, "fields": fields}


def write_rule(name: str, source: str = "", tests: str = "") -> dict[str, Any]:
    """Return an edit that writes a constraint."""
    given = {"source": source, "tests_source": tests}
    return {"op": "write_constraint", "name": name, **{k: v for k, v in given.items() if v}}


def rename_field(kind: str, name: str, new_name: str) -> dict[str, Any]:
    """Return an edit that renames a field of a class."""
    domain = _at(kind, "")["domain"]
    where = {"domain": domain, "class_name": kind}
    return {"op": "rename_field", **where, "name": name, "new_name": new_name}


def add_field(kind: str, name: str, type_: str, default: Any = None) -> dict[str, Any]:
    """Return an edit that adds a field to a class."""
    domain = _at(kind, "")["domain"]
    where = {"domain": domain, "class_name": kind}
    return {"op": "add_field", **where, "name": name, "type": type_, "default": default}


def give_reasons(edit: Mapping[str, Any], **derived: str) -> dict[str, Any]:
    """Return a copy of the edit that marks values as derived, each with a reason."""
    return {**edit, "derived": derived}


NSAID = update_record("Allergy", "pen", drug_class="nsaid")
