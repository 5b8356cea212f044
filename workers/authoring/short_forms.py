"""The short forms in which a model writes facts and edits, since each word that it writes is paid.

A fact is a text that begins with the numbers of its messages: `[3, 4] Ada moves to Rome.` An edit's
first attribute is the operation, with what it applies to as its value:

    {"add": "travel.Trip", "key": "rome", "from": 12, "fields": {"to": "Rome"}}
    {"add": "travel.Trip", "fields": ["to", "on"], "rows": [[12, "rome", "Rome", "2026-05-02"]]}
    {"update": "travel.trips.rome", "from": 12, "fields": {"on": "2026-05-03"}}
    {"note": [12, 13]}

They are expanded into the long forms, which the rest of the server reads; these pass unchanged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memory.project import Add, Conflict, DefineClass, Dismiss, EditError, Note
from memory.project.edits import OPERATIONS

_CITED = re.compile(r"\s*\[\s*(\d{1,9}(?:\s*,\s*\d{1,9})*)\s*\]\s*")
_CLASS = ("domain", "class_name")
_RECORD = ("domain", "collection", "key")
# The attributes that an operation's value stands for, joined by dots if there are several.
_TARGETS: Mapping[str, tuple[str, ...]] = {
    "define_class": ("domain", "name"),
    "add_field": (*_CLASS, "name"),
    "widen_field": (*_CLASS, "name"),
    "rename_field": (*_CLASS, "name"),
    "add": _CLASS,
    "update": _RECORD,
    "retire": _RECORD,
    "write_constraint": ("name",),
    "delete_constraint": ("name",),
    "note": ("from",),
    "conflict": ("about",),
    "dismiss": ("from",),
}
# The first columns of each row of an `add`.
ROW = ("from", "key")


def expand_facts(sent: Any) -> Any:
    """Return a list of facts, or changes to facts by number, in long form."""
    if isinstance(sent, Mapping):
        return {number: _expand_fact(change) for number, change in sent.items()}
    return [_expand_fact(fact) for fact in sent] if isinstance(sent, list) else sent


def expand_edits(sent: Any) -> Any:
    """Return a list of edits, or changes to edits by number, in long form.

    In a list, each row of an `add` becomes an edit, and so does each entry of a `note`.
    """
    if isinstance(sent, Mapping):
        return {number: _expand_change(change) for number, change in sent.items()}
    return [*_single_edits(sent)] if isinstance(sent, list) else sent


def _expand_change(change: Any) -> Any:
    edits = [*_single_edits([change])]
    return edits[0] if len(edits) == 1 else change


def _expand_fact(sent: Any) -> Any:
    fact = {"text": sent} if isinstance(sent, str) else sent
    if not isinstance(fact, Mapping) or not isinstance(fact.get("text"), str):
        return fact
    cited = _CITED.match(fact["text"])
    if cited is None or "sources" in fact:
        return fact
    numbers = [int(number) for number in cited[1].split(",")]
    return {**fact, "text": fact["text"][cited.end() :], "sources": numbers}


def _single_edits(sent: Sequence[Any]) -> Iterator[Any]:
    for edit in map(expand_edit, sent):
        if not isinstance(edit, Mapping):
            yield edit
        elif isinstance(rows := edit.get("rows"), list):
            rest = {name: value for name, value in edit.items() if name != "rows"}
            yield from (expand_edit({**rest, "row": row}) for row in rows)
        elif isinstance(entries := edit.get("each"), list):
            rest = {name: value for name, value in edit.items() if name != "each"}
            yield from ({**rest, "from": seq} for seq in entries)
        else:
            yield edit


def expand_edit(sent: Any) -> Any:
    """Return an edit, or a change to one, in long form; several rows or notes stay together."""
    if not isinstance(sent, Mapping):
        return sent
    edit = dict(sent)
    op = next((name for name in edit if name in OPERATIONS), None)
    if "op" not in edit and op is not None:
        edit = {"op": op, **_target(op, edit.pop(op), edit), **edit}
    fields, row = edit.get("fields"), edit.get("row")
    if edit.get("op") == DefineClass.op and isinstance(fields, Mapping):
        edit["fields"] = [{"name": name, **_type(type_)} for name, type_ in fields.items()]
    if edit.get("op") == Conflict.op and isinstance(edit.get("records"), list):
        edit["records"] = [_record(record) for record in edit["records"]]
    if edit.get("op") == Add.op and (named := _named_values(row, fields)) is not None:
        del edit["row"]
        values = {name: value for name, value in named.items() if value is not None}
        edit |= {name: values.pop(name) for name in ROW if name in values}
        edit["fields"] = values
    return edit


def refuse_row(edit: Mapping[str, Any]) -> None:
    """Raise EditError for a row that has not one value for each of its columns."""
    if edit.get("op") == Add.op and "row" in edit:
        names = edit.get("fields")
        columns = ", ".join(map(str, [*ROW, *(names if isinstance(names, list) else ["..."])]))
        raise EditError(
            "malformed",
            f"a row has one value, or null, for each of {columns}; this one is"
            f' {edit["row"]!r:.300}. Send {{"row": [...]}} again',
        )


def _target(op: str, value: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that an operation's value stands for."""
    if op == Note.op and isinstance(value, str):
        return {"text": value}
    if op == Note.op and isinstance(value, list) and "text" not in others:
        return {"each": value}
    names = _TARGETS[op]
    if not isinstance(value, str) or op in (Conflict.op, Dismiss.op):
        return {names[0]: value}
    return dict(zip(names, value.split(".", len(names) - 1), strict=False))


def _type(type_: Any) -> dict[str, Any]:
    return dict(type_) if isinstance(type_, Mapping) else {"type": type_}


def _record(record: Any) -> Any:
    if not isinstance(record, str):
        return record
    return dict(zip(_RECORD, record.split(".", len(_RECORD) - 1), strict=False))


def _named_values(row: Any, fields: Any) -> dict[str, Any] | None:
    """Return a row's values by column, or None if the row does not fit the columns."""
    if not isinstance(row, list) or not isinstance(fields, list):
        return None
    columns = (*ROW, *fields)
    if len(row) != len(columns) or not all(isinstance(name, str) for name in fields):
        return None
    return dict(zip(columns, row, strict=True))
