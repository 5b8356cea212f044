"""Entries of the log: what a product or a conversation says of a user."""

from typing import Any

from userascode.params import NewRecordEntry, NewTextEntry


def record(domain: str, type: str, /, key: str | None = None, **data: Any) -> NewRecordEntry:
    """Return a typed entry: a record of the class `type`, whose fields are `data`.

    A second one with the same key changes the fields that it names. Fields called `key`, and
    options such as `occurred_at`, are set on the returned dict.
    """
    entry: NewRecordEntry = {"kind": "record", "domain": domain, "type": type, "data": data}
    if key is not None:
        entry["key"] = key
    return entry


def message(content: str, role: str = "user", *, session_id: str | None = None) -> NewTextEntry:
    """Return what somebody said: the user, or with another `role` the assistant."""
    entry: NewTextEntry = {"kind": "message", "role": role, "content": content}
    if session_id is not None:
        entry["session_id"] = session_id
    return entry


def fact(content: str) -> NewTextEntry:
    """Return a statement about the user that needs no extraction."""
    return {"kind": "fact", "content": content}


def correction(content: str) -> NewTextEntry:
    """Return a statement that overrides what the memory holds."""
    return {"kind": "correction", "content": content}
