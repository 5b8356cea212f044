"""Applying edits to a project. Each edit is fully checked before it changes anything."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memory.kernel.texts import parse_python
from memory.project import conflicts
from memory.project.conform import conform_fields, conform_some_fields, make_aware, normal_fields
from memory.project.edits import (
    Add,
    AddField,
    Conflict,
    DefineClass,
    DeleteConstraint,
    Dismiss,
    Edit,
    FieldSpec,
    Note,
    RenameField,
    Retire,
    RetireEarlier,
    Update,
    WidenField,
    WriteConstraint,
    check_sources,
)
from memory.project.errors import EditError
from memory.project.literals import same
from memory.project.model import Project, same_record
from memory.project.names import check_key, check_lower_name, default_collection, key_of_entry
from memory.project.outline import REQUIRED, SET_ASIDE, Class, Domain
from memory.project.schema_edits import (
    add_field,
    check_new_holder,
    define_class,
    existing_class,
    existing_domain,
    places_of,
    rename_field,
    widen_field,
)
from memory.project.set_aside import without_set_aside
from memory.project.types import ListOf
from memory.project.values import Record, RecordId, Value

# Maximum length, in characters, of a conflict's `about`, which becomes part of an alert's message.
MAX_ABOUT = 200


def apply(project: Project, edit: Edit) -> None:
    """Apply an edit; raises EditError and leaves the project unchanged if the edit is invalid."""
    check_sources(edit)
    _APPLY[type(edit)](project, edit)


def add_of(record_id: RecordId, record: Record, *, singleton: bool) -> Add:
    """Return the edit that adds a record, citing the record's own sources."""
    return Add(
        record_id.domain,
        record.class_name,
        record.fields,
        record.sources,
        record.key,
        record_id.collection,
        singleton=singleton,
    )


def add_exactly(project: Project, record_id: RecordId, record: Record, *, singleton: bool) -> Edit:
    """Add a record exactly as it is, and return the edit.

    The edit alone would turn text that looks like a date into a date if its field allows several
    types.
    """
    add = add_of(record_id, record, singleton=singleton)
    apply(project, add)
    if not same_record(record, project.record(record_id)):
        project.replace(record_id, record)
    return add


def free_key(project: Project, domain: str, collection: str, class_name: str, seq: int) -> str:
    """Return an unused key for a record that has no key: `trip-41`, then `trip-41-2`, and so on."""
    key = base = key_of_entry(class_name, seq)
    number = 1
    while project.find(RecordId(domain, collection, key)):
        number += 1
        key = f"{base}-{number}"
    return key


def collection_for(domain: Domain, class_name: str) -> str:
    """Return the name of the collection that holds a class's records by default."""
    existing = domain.collections_of(class_name)
    if existing:
        return existing[0]
    name = default_collection(class_name)
    while name in domain.holders:
        name += "_"
    return name


def _add(project: Project, edit: Add) -> None:
    domain, class_ = existing_class(project, edit.domain, edit.class_name)
    where = f"{edit.domain}.{edit.class_name}"
    if not class_.is_record:
        raise EditError(
            "not_a_record",
            f"{where} is not a record class: add its objects as parts of a record",
        )
    name = edit.collection
    if name is None:
        if edit.singleton:
            raise EditError(
                "malformed", "add.collection is missing: give the name of the singleton"
            )
        name = collection_for(domain, class_.name)
    held = domain.collections.get(name)
    if edit.singleton and name in domain.singletons:
        raise EditError(
            "singleton_exists",
            f"{edit.domain}.{name} already exists: change it with update, or retire it",
        )
    if held is None or edit.singleton:
        check_new_holder(domain, name)
    elif held.class_name != class_.name:
        raise EditError(
            "wrong_collection",
            f"{edit.domain}.{name} contains {held.class_name} records: name another collection",
        )
    key = edit.key
    if key is None:
        key = free_key(project, edit.domain, name, class_.name, max(edit.sources))
    record_id = RecordId(edit.domain, name, key)
    check_key(key)
    _check_unused(project, record_id)
    _check_derived(edit, where)
    comes_back = project.find(record_id) is not None
    fields = conform_fields(edit.fields, class_, domain, where)
    fields = {name: make_aware(value, project.time_zone) for name, value in fields.items()}
    record = Record(class_.name, key, fields, tuple(sorted(set(edit.sources))))
    if held is None and not edit.singleton:
        project.add_collection(edit.domain, name, class_.name)
    project.add(record_id, record, singleton=edit.singleton)
    project.note_derived(record_id, dict(edit.derived))
    if comes_back:  # if it was retired by an earlier edit of the same change, it is now updated
        project.note_set(record_id, fields, edit.sources)


def _update(project: Project, edit: Update) -> None:
    record_id = RecordId(edit.domain, edit.collection, edit.key)
    record = _existing_record(project, record_id)
    domain = project.outline.domains[edit.domain]
    class_ = domain.classes[record.class_name]
    where = f"{edit.domain}.{class_.name}"
    _check_derived(edit, where)
    changed = conform_some_fields(edit.fields, class_, domain, where)
    changed |= _parts_changed(edit, {**record.fields, **changed}, class_, domain)
    changed = {name: make_aware(value, project.time_zone) for name, value in changed.items()}
    fields = {**record.fields, **changed}
    if SET_ASIDE in record.fields and SET_ASIDE not in changed:
        fields = without_set_aside(fields, changed.keys())
    fields = normal_fields(fields, class_)
    sources = tuple(sorted({*record.sources, *edit.sources}))
    project.replace(record_id, replace(record, fields=fields, sources=sources))
    project.note_derived(record_id, dict(edit.derived))
    project.note_set(record_id, changed, edit.sources)


def _parts_changed(
    edit: Update, held: Mapping[str, Value], class_: Class, domain: Domain
) -> dict[str, Value]:
    """Return the lists and texts to which the edit adds something, or from which it removes it."""
    changed: dict[str, Value] = {}
    for verb, change in (("append", _appended), ("remove", _removed)):
        for name, given in getattr(edit, verb):
            where = f"update.{verb}.{name}"
            field = class_.field(name)
            types = (field.type, *getattr(field.type, "members", ())) if field else ()
            is_list = any(isinstance(one, ListOf) for one in types)
            items = [given] if is_list and not isinstance(given, list) else given
            new = conform_some_fields({name: items}, class_, domain, where)[name]
            changed[name] = change(changed.get(name, held.get(name)), new, where)
    return changed


def _appended(old: Value, new: Value, where: str) -> Value:
    match old, new:
        case None, list() | str():
            return new
        case list(), list():
            return [*old, *(item for item in new if not _contains(old, item))]
        case str(), str():
            return f"{old} {new}".strip()
    raise EditError("no_parts", f"{where} is neither a list nor a text: set it in update.fields")


def _removed(old: Value, new: Value, where: str) -> Value:
    match old, new:
        case list(), list() if all(_contains(old, item) for item in new):
            return [item for item in old if not _contains(new, item)]
        case str(), str() if new and new in old:
            return " ".join(old.replace(new, " ").split())
        case (None | list(), list()) | (None | str(), str()):
            raise EditError("not_contained", f"{where} is not in the record: see what it contains")
    raise EditError("no_parts", f"{where} is neither a list nor a text: set it in update.fields")


def _contains(items: Sequence[Value], wanted: Value) -> bool:
    return any(same(item, wanted) for item in items)


def _check_derived(edit: Add | Update, where: str) -> None:
    parts = dict(edit.append) | dict(edit.remove) if isinstance(edit, Update) else {}
    for name, _ in edit.derived:
        if name not in edit.fields and name not in parts:
            choices = ", ".join([*edit.fields, *parts]) or "none"
            raise EditError(
                "unknown_field",
                f"{edit.op}.derived names the field {name!r} of {where}, which this edit does not"
                f" set: it sets {choices}",
            )


def _retire(project: Project, edit: Retire) -> None:
    record_id = RecordId(edit.domain, edit.collection, edit.key)
    _existing_record(project, record_id)
    project.remove(record_id, edit.sources)


def _retire_earlier(project: Project, edit: RetireEarlier) -> None:
    record_id = RecordId(edit.domain, edit.collection, edit.key)
    record = project.record(record_id)
    if record is not None:
        if not edit.keeps or not {*edit.keeps} <= {*record.sources}:
            raise EditError(
                "malformed",
                f"retire_earlier.keeps must name entries behind {'.'.join(record_id)}, which is"
                " based on " + ", ".join(map(str, record.sources)),
            )
        class_ = existing_domain(project, edit.domain).classes[record.class_name]
        for field in class_.fields:
            if field.name in edit.clears and field.default is REQUIRED:
                raise EditError(
                    "missing_field",
                    f"{edit.domain}.{class_.name}.{field.name} is required: make it optional with"
                    " widen_field first",
                )
        fields = {name: value for name, value in record.fields.items() if name not in edit.clears}
        fields = normal_fields(without_set_aside(fields, edit.clears), class_)
        project.replace(record_id, replace(record, fields=fields, sources=edit.keeps))
        project.note_set(record_id, edit.clears, edit.sources)
    project.note_ended(record_id, edit.sources)


def _write_constraint(project: Project, edit: WriteConstraint) -> None:
    check_lower_name(edit.name, "constraint")
    for attribute, source in (("source", edit.source), ("tests_source", edit.tests_source)):
        try:
            parse_python(source)
        except SyntaxError as error:
            raise EditError(
                "syntax", f"{edit.name}.{attribute}, line {error.lineno}: {error.msg}"
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise EditError(
                "syntax", f"{edit.name}.{attribute} is not valid Python: {error}"
            ) from None
    project.write_constraint(edit.name, edit.source, edit.tests_source)


def _delete_constraint(project: Project, edit: DeleteConstraint) -> None:
    if edit.name not in project.outline.constraints:
        choices = ", ".join(project.outline.constraints) or "none"
        raise EditError(
            "unknown_constraint", f"there is no constraint {edit.name!r} (existing: {choices})"
        )
    project.delete_constraint(edit.name)


def _note(project: Project, edit: Note) -> None:
    if not edit.text.strip():
        raise EditError("malformed", "note.text is empty: write down what to remember")
    domain = project.outline.domains.get("notes")
    if domain is None or "Note" not in domain.classes:
        define_class(project, DefineClass("notes", "Note", (FieldSpec("text", "str"),)))
    _add(project, Add("notes", "Note", {"text": edit.text}, edit.sources, derived=edit.derived))


def _conflict(project: Project, edit: Conflict) -> None:
    about = " ".join(edit.about.split())
    if not 0 < len(about) <= MAX_ABOUT:
        raise EditError(
            "malformed",
            f"conflict.about must describe what the records disagree on, in 1 to {MAX_ABOUT}"
            " characters",
        )
    if len(set(edit.records)) < 2:
        raise EditError("malformed", "conflict.records must name at least two records")
    records = [_existing_record(project, record_id) for record_id in edit.records]
    for missing in conflicts.missing_parts(project):
        apply(project, missing)
    names = [".".join(record_id) for record_id in dict.fromkeys(edit.records)]
    add = Add(
        conflicts.DOMAIN,
        conflicts.CLASS,
        {"about": about, "records": names},
        # The `Conflict` record also cites the conflicting records' sources, so that its alert leads
        # to all of the conflicting statements.
        tuple({*edit.sources, *(seq for record in records for seq in record.sources)}),
        collection=conflicts.COLLECTION,
        derived=(("records", "names of records"),),
    )
    _add(project, add)


def _dismiss(project: Project, edit: Dismiss) -> None:
    if not edit.reason.strip():
        raise EditError("malformed", "dismiss.reason is empty: explain why nothing is kept")


def _existing_record(project: Project, record_id: RecordId) -> Record:
    domain = existing_domain(project, record_id.domain)
    location = project.find(record_id)
    if location and location.retired:
        raise EditError(
            "key_retired", f"{'.'.join(record_id)} was retired: add it again if it is back"
        )
    where = f"{record_id.domain}.{record_id.collection}"
    if record_id.collection not in domain.holders:
        choices = ", ".join(domain.holders) or "none"
        raise EditError(
            "unknown_collection",
            f"{record_id.domain} has no collection {record_id.collection!r}: it has {choices}"
            + places_of(project, record_id.collection),
        )
    record = project.record(record_id)
    if record is None:
        raise EditError(
            "unknown_key", f"{where} has no record {record_id.key!r}: create it with add"
        )
    return record


def _check_unused(project: Project, record_id: RecordId) -> None:
    location = project.find(record_id)
    if location and not location.retired:
        raise EditError(
            "key_exists", f"{'.'.join(record_id)} already exists: change it with update"
        )


_APPLY: Mapping[type, Callable[[Project, Any], None]] = {
    DefineClass: define_class,
    AddField: add_field,
    WidenField: widen_field,
    RenameField: rename_field,
    Add: _add,
    Update: _update,
    Retire: _retire,
    RetireEarlier: _retire_earlier,
    WriteConstraint: _write_constraint,
    DeleteConstraint: _delete_constraint,
    Note: _note,
    Conflict: _conflict,
    Dismiss: _dismiss,
}
