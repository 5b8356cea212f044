"""The short forms in which a model writes facts and edits, since each word that it writes is paid.

A fact is a text that begins with the numbers of its messages: `[3, 4] Ada moves to Rome.` An edit's
first attribute is the operation, with what it applies to as its value:

    {"add": "travel.Trip", "key": "rome", "from": 12, "fields": {"to": "Rome"}}
    {"add": "travel.Trip", "fields": ["to", "on"], "rows": [[12, "rome", "Rome", "2026-05-02"]]}
    {"update": "travel.trips.rome", "from": 12, "fields": {"on": "2026-05-03"}}
    {"note": [12, 13]}

Rows and lists of notes are split as soon as they arrive, so that each edit has a number. The model
changes edits by number in the form in which it wrote them; each is expanded into its long form, in
which the rest of the server reads it, when it is applied. Long forms pass unchanged.
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


def split_edits(sent: Any) -> Any:
    """Return a list of single edits, or changes by number, each with a list of single edits.

    Each row of an `add` becomes an edit, and so does each entry of a `note`.
    """
    if isinstance(sent, Mapping):
        return {
            number: None if change is None else [*_single_edits([change])]
            for number, change in sent.items()
        }
    return [*_single_edits(sent)] if isinstance(sent, list) else sent


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
    for edit in sent:
        if not isinstance(edit, Mapping):
            yield edit
        elif isinstance(rows := edit.get("rows"), list):
            rest = {name: value for name, value in edit.items() if name != "rows"}
            yield from (_with_named_values({**rest, "row": row}) for row in rows)
        elif isinstance(entries := edit.get(Note.op), list) and "text" not in edit:
            yield from ({**edit, Note.op: seq} for seq in entries)
        else:
            yield edit


def expand_edit(sent: Any) -> Any:
    """Return a single edit in long form."""
    if not isinstance(sent, Mapping):
        return sent
    edit = dict(sent)
    op = operation_of(edit)
    if op in edit:
        target = _target(op, edit.pop(op))
        edit = edit | target if "op" in edit else {"op": op, **target, **edit}
    edit = _with_named_values(edit)
    fields = edit.get("fields")
    if op == DefineClass.op and isinstance(fields, Mapping):
        edit["fields"] = [
            {"name": name, **_type(type_)} for name, type_ in fields.items() if type_ is not None
        ]
    if op == Conflict.op and isinstance(edit.get("records"), list):
        edit["records"] = [_record(record) for record in edit["records"]]
    if op == Add.op and isinstance(fields, Mapping):
        edit["fields"] = {name: value for name, value in fields.items() if value is not None}
    return edit


def operation_of(edit: Mapping[str, Any]) -> Any:
    """Return the operation of an edit in either form; None of a change that names none."""
    op = edit.get("op")
    if isinstance(op, str) and op:
        return op
    return next((name for name in edit if name in OPERATIONS), None)


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


def _target(op: str, value: Any) -> dict[str, Any]:
    """Return the attributes that an operation's value stands for."""
    names = _TARGETS[op]
    if not isinstance(value, str) or op in (Conflict.op, Dismiss.op):
        return {names[0]: value}
    if op == Note.op:
        return {"text": value}
    return dict(zip(names, value.split(".", len(names) - 1), strict=False))


def _type(type_: Any) -> dict[str, Any]:
    return dict(type_) if isinstance(type_, Mapping) else {"type": type_}


def _record(record: Any) -> Any:
    if not isinstance(record, str):
        return record
    return dict(zip(_RECORD, record.split(".", len(_RECORD) - 1), strict=False))


def _with_named_values(edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return an edit with a row's values by name, if it has a row that fits its columns.

    The columns are the edit's `fields`: their names or, once the row has been named, the fields.
    """
    row, fields = edit.get("row"), edit.get("fields")
    if not isinstance(row, list) or not isinstance(fields, list | Mapping):
        return dict(edit)
    columns = [*ROW, *fields]
    if len(row) != len(columns) or not all(isinstance(name, str) for name in columns):
        return dict(edit)
    values = dict(zip(columns, row, strict=True))
    own = {name: value for name in ROW if (value := values.pop(name)) is not None}
    rest = {name: value for name, value in edit.items() if name not in ("row", *ROW)}
    return {**rest, **own, "fields": values}
