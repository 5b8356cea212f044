"""Suggestions for entries with wrong field names: the nearest valid entry."""

import json
from collections.abc import Mapping
from typing import Any

from memory.kernel.texts import shortened
from memory.log.models.entries import EntryKind
from memory.project import EditError
from memory.project.names import check_class_name

KINDS = frozenset(EntryKind.values) - {EntryKind.REDACTION}
RECORD_FIELDS = ("domain", "type", "collection", "key", "data", "retired")
# Field names in other APIs and in edits → our field names.
OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("op", "event", "action", "entry_type"), "kind"),
    **dict.fromkeys(("class", "class_name", "record_type", "schema"), "type"),
    **dict.fromkeys(("fields", "record", "values", "payload", "properties", "attributes"), "data"),
    **dict.fromkeys(("text", "message", "body", "memory", "msg"), "content"),
    **dict.fromkeys(("at", "date", "time", "timestamp", "when", "created_at"), "occurred_at"),
    **dict.fromkeys(("id", "record_id"), "key"),
    **dict.fromkeys(("author", "from", "sender"), "speaker"),
    **dict.fromkeys(("session", "conversation_id", "thread_id"), "session_id"),
    **dict.fromkeys(("deleted", "removed"), "retired"),
}
# These fields describe the entry itself; they are never fields of its record.
_FRAME = ("kind", "type", "data")
MAX_SHOWN = 200


def entry_meant(body: Mapping[str, Any], meant: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return the valid entry that a body most closely resembles, or None if there is none.

    `meant` maps each unknown field name in the body to the right name, or to None if the right name
    is unclear. Values are copied from the body, valid or not. A record without `data` is assumed to
    have its fields alongside its `type`.
    """
    entry = {name: value for name, value in body.items() if name not in meant}
    for name, ours in meant.items():
        if ours in _FRAME:
            entry.setdefault(ours, body[name])
    if _kind(entry.get("kind")) is None and _kind(entry.get("type")):
        entry["kind"] = entry.pop("type")
    kind = _kind(entry.pop("kind", None))
    has_content = "content" in {*entry, *meant.values()}
    is_record = (
        kind == EntryKind.RECORD
        or (kind is None and any(name in entry for name in RECORD_FIELDS))
        or (not has_content and entry.keys() >= {"type", "data"})
    )
    is_flat = is_record and "data" not in entry
    rest = {}
    for name, ours in meant.items():
        if ours is None or (is_flat and ours not in _FRAME):
            rest[name] = body[name]
        else:
            entry.setdefault(ours, body[name])
    entry.pop("kind", None)
    if is_record:
        return {"kind": EntryKind.RECORD.value, **_record(entry, rest, body.get("op"))}
    if not entry.get("content"):
        return None
    kept = {name: value for name, value in entry.items() if name not in RECORD_FIELDS}
    return {"kind": kind or EntryKind.MESSAGE.value, **kept}


def written(entry: Mapping[str, Any]) -> str:
    """Return an entry as JSON with long values shortened."""
    parts = (
        f"{json.dumps(name)}: {shortened(json.dumps(value, ensure_ascii=False), MAX_SHOWN)}"
        for name, value in entry.items()
    )
    return f"{{{', '.join(parts)}}}"


def _kind(value: Any) -> str | None:
    return value if isinstance(value, str) and value in KINDS else None


def _record(entry: Mapping[str, Any], rest: Mapping[str, Any], operation: Any) -> dict[str, Any]:
    record = {name: value for name, value in entry.items() if name != "content"}
    if operation == "retire":
        record["retired"] = True
    elif "data" not in record and rest:
        record["data"] = dict(rest)
    if isinstance(name := record.get("type"), str):
        record["type"] = _class_name(name)
    return record


def _class_name(text: str) -> str:
    name = text[:1].upper() + text[1:]
    try:
        check_class_name(name)
    except EditError:
        return text
    return name
