"""Edits: all the ways in which a project can be changed, and their strict JSON form.

In JSON, an edit is an object whose `op` is the class name in snake case and whose other keys are
the class's attributes. Field values are plain or typed JSON; they are converted to the fields'
types when the edit is applied.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from memory.project.errors import EditError
from memory.project.outline import REQUIRED
from memory.project.typed import decode, encode
from memory.project.values import RecordId

Kind = Literal["record", "object", "enum"]

# Maximum length, in characters, of a constraint's source or tests, which are parsed and repaired
# repeatedly.
MAX_SOURCE = 64 * 1024


@dataclass(frozen=True)
class FieldSpec:
    """A field of a new class; it is required if it has no default and its type excludes None.

    `original` is the field's name in the caller's data, if that is another one.
    """

    name: str
    type: str
    default: object = REQUIRED
    original: str | None = None


@dataclass(frozen=True)
class DefineClass:
    """Define a record class, a class of objects within records, or an enum.

    A domain is created along with its first class. If `collection` is given, an empty collection of
    that name is created for the class. To extend an existing enum, list both its old and new
    members.
    """

    op: ClassVar = "define_class"
    domain: str
    name: str
    fields: tuple[FieldSpec, ...] = ()
    kind: Kind = "record"
    members: tuple[tuple[str, str | int], ...] = ()
    collection: str | None = None
    doc: str = ""
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class AddField:
    """Add a field that has a default or may be None, so that existing records can stay as is.

    For `original`, see `FieldSpec`.
    """

    op: ClassVar = "add_field"
    domain: str
    class_name: str
    name: str
    type: str
    default: object = REQUIRED
    original: str | None = None
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class WidenField:
    """Give a field a wider type, one that includes all values of the old type.

    Values that were set aside and fit the new type move into the field.
    """

    op: ClassVar = "widen_field"
    domain: str
    class_name: str
    name: str
    type: str
    sources: tuple[int, ...] = ()

    @property
    def call(self) -> str:
        """This edit written as a function call, for error messages that recommend it."""
        return (
            f'{self.op}(domain="{self.domain}", class_name="{self.class_name}",'
            f' name="{self.name}", type="{self.type}")'
        )


@dataclass(frozen=True)
class RenameField:
    """Rename a field in a class and in all of its records."""

    op: ClassVar = "rename_field"
    domain: str
    class_name: str
    name: str
    new_name: str
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Add:
    """Add a record.

    If `key` is None, the record's key is `<class>-<newest source>[-n]`. If `collection` is None,
    the record goes into its class's first collection, which is created if necessary. If `singleton`
    is set, `collection` is the singleton's name. `derived` has a pair for each field with dates or
    numbers that don't appear in any cited entry: the field's name and where its value comes from,
    such as ("nights", "from check-in and check-out").
    """

    op: ClassVar = "add"
    domain: str
    class_name: str
    fields: Mapping[str, object]
    sources: tuple[int, ...]
    key: str | None = None
    collection: str | None = None
    singleton: bool = False
    derived: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Update:
    """Change some of a record's fields, and add sources to it. For `derived`, see `Add`.

    `append` and `remove` have a pair for each list or text to which something is added, or from
    which it is removed: the field's name, and an item, a list of items, or a text.
    """

    op: ClassVar = "update"
    domain: str
    collection: str
    key: str
    fields: Mapping[str, object]
    sources: tuple[int, ...]
    derived: tuple[tuple[str, str], ...] = ()
    append: tuple[tuple[str, object], ...] = ()
    remove: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Retire:
    """Retire a record: remove it from the state. An `Add` with its key begins a new life of it."""

    op: ClassVar = "retire"
    domain: str
    collection: str
    key: str
    sources: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class RetireEarlier:
    """Retire what was said of a record before a late retirement, and keep what was said after it.

    `keeps` are the record's entries that occurred after the retirement, and `clears` are the fields
    that none of them sets. Without `keeps`, the record does not exist: the retirement only ends
    entries that arrive later but occurred before it. Only the server writes this edit, when it
    compiles a typed entry.
    """

    op: ClassVar = "retire_earlier"
    domain: str
    collection: str
    key: str
    sources: tuple[int, ...]
    keeps: tuple[int, ...] = ()
    clears: tuple[str, ...] = ()


@dataclass(frozen=True)
class WriteConstraint:
    """Write constraints/<name>.py and tests/test_<name>.py exactly as given."""

    op: ClassVar = "write_constraint"
    name: str
    source: str
    tests_source: str
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeleteConstraint:
    """Delete a constraint and its tests."""

    op: ClassVar = "delete_constraint"
    name: str
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Note:
    """Store text that fits no class as a record in `notes`. For `derived`, see `Add`."""

    op: ClassVar = "note"
    text: str
    sources: tuple[int, ...]
    derived: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Conflict:
    """Mark records as contradicting each other; they are kept, and a constraint fires for them.

    `about` is a short description of what the records disagree on. The conflict is stored as a
    record in the `conflicts` collection of the `conflicts` domain; retiring that record resolves
    the conflict.
    """

    op: ClassVar = "conflict"
    about: str
    records: tuple[RecordId, ...]
    sources: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class Dismiss:
    """Declare, with a reason, that certain entries contain nothing to remember.

    The project does not change.
    """

    op: ClassVar = "dismiss"
    reason: str
    sources: tuple[int, ...]


Edit: TypeAlias = (
    DefineClass
    | AddField
    | WidenField
    | RenameField
    | Add
    | Update
    | Retire
    | RetireEarlier
    | WriteConstraint
    | DeleteConstraint
    | Note
    | Conflict
    | Dismiss
)

_EDITS: Mapping[str, type[Edit]] = {edit.op: edit for edit in get_args(Edit)}
# The edits that models, agents and people may propose.
OPERATIONS: Mapping[str, type[Edit]] = {
    op: edit for op, edit in _EDITS.items() if edit is not RetireEarlier
}
# The attributes with which an update changes a part of a field.
PARTS = ("append", "remove")
_NEED_SOURCES = (Add, Update, Retire, RetireEarlier, Note, Conflict, Dismiss)


def edit_from_json(data: object) -> Edit:
    """Parse an edit; if it is invalid, raises an EditError that names the field and the fix."""
    if not isinstance(data, dict):
        raise _malformed("an edit", "an object with `op`", data)
    op = data.get("op")
    if not isinstance(op, str) or op not in _EDITS:
        raise _malformed("op", f"one of {', '.join(OPERATIONS)}", op)
    arguments = {name: value for name, value in data.items() if name != "op"}
    edit: Edit = _build(_EDITS[op], arguments, op)
    return edit


def proposal_from_json(data: object) -> Edit:
    """Parse a proposed edit; also raises EditError for an edit that only the server writes."""
    edit = edit_from_json(data)
    if edit.op not in OPERATIONS:
        raise EditError(
            "malformed", f"{edit.op} is written only by the server: propose retire or update"
        )
    return edit


def edit_to_json(edit: Edit) -> dict[str, Any]:
    """Return the edit as JSON that `edit_from_json` can parse."""
    return {"op": edit.op, **_to_json(edit)}


def fields_set(edit: Mapping[str, Any]) -> dict[str, None]:
    """Return the names of the fields that an `add` or `update`, as JSON, sets or changes."""
    return dict.fromkeys(name for part in ("fields", *PARTS) for name in edit.get(part, {}))


def check_sources(edit: Edit) -> None:
    """Reject an edit with invalid entry numbers as sources, or without the sources it requires."""
    _sources(list(edit.sources), f"{edit.op}.sources")
    if isinstance(edit, _NEED_SOURCES) and not edit.sources:
        raise EditError(
            "no_sources", f"{edit.op}.sources is empty: cite the entries that the edit is based on"
        )


def _to_json(item: Edit | FieldSpec) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for attribute in dataclasses.fields(item):
        value = getattr(item, attribute.name)
        if type(value) is type(attribute.default) and value == attribute.default:
            continue
        match value:
            case tuple() if attribute.name in PARTS:
                data[attribute.name] = {name: encode(part) for name, part in value}
            case tuple():
                data[attribute.name] = [
                    _to_json(part) if isinstance(part, FieldSpec) else _plain(part)
                    for part in value
                ]
            case _:
                data[attribute.name] = encode(value)
    return data


def _plain(part: object) -> object:
    if isinstance(part, RecordId):
        return part._asdict()
    return list(part) if isinstance(part, tuple) else part


def _build(class_: type[Any], arguments: Mapping[str, object], where: str) -> Any:
    attributes = {attribute.name: attribute for attribute in dataclasses.fields(class_)}
    unknown = [name for name in arguments if name not in attributes]
    if unknown:
        raise EditError(
            "malformed",
            f"{where} does not take {unknown[0]!r}: it takes {', '.join(attributes)}",
        )
    values = {}
    for name, attribute in attributes.items():
        if name in arguments:
            read = _READERS[name]
            if name == "fields" and class_ is DefineClass:
                read = _specs
            is_optional = attribute.default is not dataclasses.MISSING
            may_be_empty = name in ("default", "original")
            if is_optional and not may_be_empty and arguments[name] in (None, "", [], {}):
                continue  # as if it were not given
            values[name] = read(arguments[name], f"{where}.{name}")
        elif attribute.default is dataclasses.MISSING:
            raise EditError("malformed", f"{where}.{name} is missing")
    return class_(**values)


def _source(value: object, where: str) -> str:
    source = _text(value, where)
    if len(source) > MAX_SOURCE:
        raise EditError(
            "too_large",
            f"{where} has {len(source):,} characters: at most {MAX_SOURCE:,} are allowed",
        )
    return source


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _malformed(where, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise EditError(
            "bad_text", f"{where} contains a lone surrogate: send valid Unicode"
        ) from None
    return value


def _boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _malformed(where, "true or false", value)
    return value


def _kind(value: object, where: str) -> str:
    if value not in get_args(Kind):
        raise _malformed(where, f"one of {', '.join(get_args(Kind))}", value)
    return str(value)


def _sources(value: object, where: str) -> tuple[int, ...]:
    numbers: list[Any] = value if isinstance(value, list) else [None]
    # In JSON, 5.0 counts as an integer.
    if not all(
        (type(number) is int or (type(number) is float and number.is_integer())) and number > 0
        for number in numbers
    ):
        raise _malformed(where, "a list of entry numbers (seq), such as [3, 7]", value)
    return tuple(int(number) for number in numbers)


def _values(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _malformed(where, "an object with a value for each field", value)
    return {str(name): decode(item, f"{where}.{name}") for name, item in value.items()}


def _parts(value: object, where: str) -> tuple[tuple[str, object], ...]:
    return tuple(_values(value, where).items())


def _specs(value: object, where: str) -> tuple[FieldSpec, ...]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _malformed(where, 'a list of fields such as {"name": ..., "type": ...}', value)
    return tuple(_build(FieldSpec, item, f"{where}[{n}]") for n, item in enumerate(value))


def _members(value: object, where: str) -> tuple[tuple[str, str | int], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and type(pair[1]) in (str, int)
        for pair in pairs
    ):
        raise _malformed(where, 'an object such as {"RED": "red"}', value)
    return tuple((name, member) for name, member in pairs)


def _reasons(value: object, where: str) -> tuple[tuple[str, str], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(text, str) and text.strip() for text in pair)
        for pair in pairs
    ):
        expected = 'an object with a reason for each field, such as {"nights": "from both dates"}'
        raise _malformed(where, expected, value)
    return tuple((_text(name, where), _text(reason, where)) for name, reason in pairs)


def _names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _malformed(where, "a list of fields", value)
    return tuple(_text(name, where) for name in value)


def _record_ids(value: object, where: str) -> tuple[RecordId, ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, dict) and item.keys() == set(RecordId._fields) for item in value
    ):
        expected = 'a list of records such as {"domain": ..., "collection": ..., "key": ...}'
        raise _malformed(where, expected, value)
    return tuple(
        RecordId(*(_text(item[name], f"{where}[{n}].{name}") for name in RecordId._fields))
        for n, item in enumerate(value)
    )


_READERS: Mapping[str, Callable[[object, str], object]] = {
    **dict.fromkeys(("domain", "name", "new_name", "class_name", "collection", "key"), _text),
    **dict.fromkeys(("type", "doc", "text", "about", "reason", "original"), _text),
    **dict.fromkeys(("source", "tests_source"), _source),
    "kind": _kind,
    "members": _members,
    "derived": _reasons,
    "records": _record_ids,
    "singleton": _boolean,
    "sources": _sources,
    "keeps": _sources,
    "clears": _names,
    "fields": _values,
    **dict.fromkeys(PARTS, _parts),
    "default": decode,
}


def _malformed(where: str, expected: str, value: object) -> EditError:
    return EditError("malformed", f"{where} must be {expected}, not {value!r:.80}")
