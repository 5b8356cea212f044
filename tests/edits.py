"""Edits as models and agents send them.

A place is `domain.Class`, `domain.Class.field` or `domain.collection.key`.
"""

from typing import Any

Edit = dict[str, Any]


def define(place: str, **types: str) -> Edit:
    """Define a class with fields of these types."""
    domain, name = place.split(".")
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return {"op": "define_class", "domain": domain, "name": name, "fields": fields}


def add(place: str, *sources: int, key: str = "", **fields: Any) -> Edit:
    """Add a record of a class, whose key the server chooses if none is given."""
    domain, name = place.split(".")
    made = {"op": "add", "domain": domain, "class_name": name, "fields": fields}
    return {**made, **({"key": key} if key else {}), "sources": list(sources)}


def update(place: str, *sources: int, **fields: Any) -> Edit:
    domain, collection, key = place.split(".")
    where = {"domain": domain, "collection": collection, "key": key}
    return {"op": "update", **where, "fields": fields, "sources": list(sources)}


def retire(place: str, *sources: int, **options: str) -> Edit:
    domain, collection, key = place.split(".")
    where = {"domain": domain, "collection": collection, "key": key}
    return {"op": "retire", **where, "sources": list(sources), **options}


def rename_field(place: str, new_name: str, *sources: int) -> Edit:
    domain, class_name, name = place.split(".")
    where = {"domain": domain, "class_name": class_name, "name": name}
    return {"op": "rename_field", **where, "new_name": new_name, "sources": list(sources)}


def note(text: str, *sources: int) -> Edit:
    return {"op": "note", "text": text, "sources": list(sources)}


def dismiss(*sources: int, reason: str = "small talk") -> Edit:
    return {"op": "dismiss", "reason": reason, "sources": list(sources)}
