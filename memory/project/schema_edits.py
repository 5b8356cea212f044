"""Applying schema edits, which define and change classes, enums and fields."""

from collections.abc import Mapping
from dataclasses import replace

from memory.project.conform import conform
from memory.project.edits import AddField, DefineClass, FieldSpec, RenameField, WidenField
from memory.project.errors import EditError
from memory.project.model import Project
from memory.project.names import (
    check_class_name,
    check_enum_member,
    check_field_name,
    check_lower_name,
    default_collection,
    singular,
    snake,
)
from memory.project.outline import REQUIRED, SET_ASIDE, Class, Default, Domain, Enumeration, Field
from memory.project.set_aside import take_in
from memory.project.types import (
    ANY,
    MapOf,
    Named,
    Type,
    format_type,
    is_wider,
    map_names,
    parse_type,
    parts,
)
from memory.project.values import EnumMember, Record, Ref, Struct, Value


def define_class(project: Project, edit: DefineClass) -> None:
    """Add a class or enum, or extend an enum; raises EditError if the edit is invalid."""
    check_lower_name(edit.domain, "domain")
    check_class_name(edit.name)
    domain = project.outline.domains.get(edit.domain) or Domain(edit.domain)
    if edit.kind == "enum":
        project.set_domain(domain.with_enum(_enumeration(edit, domain)))
        return
    if edit.name in domain.names():
        raise EditError(
            "class_exists",
            f"{edit.domain}.{edit.name} already exists: change it with add_field or widen_field",
        )
    if edit.members:
        raise EditError("malformed", 'define_class.members are allowed only for the kind "enum"')
    is_record = edit.kind == "record"
    where = f"{edit.domain}.{edit.name}"
    # Fields may refer to other records of the class being defined.
    extended = domain.with_class(Class(edit.name, is_record=is_record))
    fields = tuple(_field(project, extended, spec, where) for spec in edit.fields)
    class_ = Class(edit.name, fields, is_record, " ".join(edit.doc.split()))
    _check_class(class_, where)
    if edit.collection is not None:
        if not is_record:
            raise EditError(
                "malformed", f"{where} is not a record class: it cannot have a collection"
            )
        check_new_holder(domain, edit.collection)
    project.set_domain(domain.with_class(class_))
    if edit.collection is not None:
        project.add_collection(edit.domain, edit.collection, edit.name)


def _enumeration(edit: DefineClass, domain: Domain) -> Enumeration:
    where = f"{edit.domain}.{edit.name}"
    if edit.fields or edit.collection is not None:
        raise EditError("malformed", f"{where} is an enum: it can have only members")
    existing = domain.enums.get(edit.name)
    if existing is None and edit.name in domain.names():
        raise EditError(
            "class_exists", f"{where} already exists and is not an enum: choose another name"
        )
    members = existing.members if existing else ()
    given = dict(edit.members)
    values = [(type(value), value) for _, value in edit.members]
    if len(given) < len(edit.members) or len(set(values)) < len(values) or not given:
        raise EditError("bad_enum", f"{where} needs members with unique names and unique values")
    for name in given:
        check_enum_member(name, where)
    if any(name not in given or given[name] != value for name, value in members):
        kept = ", ".join(f"{name}={value!r}" for name, value in members)
        raise EditError("bad_enum", f"{where} must keep its members {kept}: records use them")
    new = tuple((name, value) for name, value in edit.members if name not in dict(members))
    doc = " ".join(edit.doc.split()) or (existing.doc if existing else "")
    return Enumeration(edit.name, (*members, *new), doc)


def _field(project: Project, domain: Domain, spec: FieldSpec | AddField, where: str) -> Field:
    if spec.name == SET_ASIDE and parse_type(spec.type) == MapOf(ANY):
        return Field(SET_ASIDE, MapOf(ANY), {})
    check_field_name(spec.name, where)
    type_ = _resolved(project, domain, spec.type, f"{where}.{spec.name}")
    default: Default = REQUIRED
    if spec.default is not REQUIRED:
        default = conform(spec.default, type_, domain, f"{where}.{spec.name}")
        if default and isinstance(default, list | dict | Ref | Struct):
            raise EditError(
                "bad_default",
                f"the default of {where}.{spec.name} must be a plain value, [], {{}} or null",
            )
    return Field(spec.name, type_, default, spec.original)


def _resolved(project: Project, domain: Domain, text: str, where: str) -> Type:
    """Parse a type, and check that its classes exist and are of the right kind."""
    outline = project.outline.with_domain(domain)

    def named(name: str) -> str:
        if domain.has_part(name):
            return name
        fix = f"write Ref[{name}]" if name in domain.classes else "define it first"
        raise EditError("unknown_class", f"{where}: {name} is not a type in {domain.name}: {fix}")

    def ref(name: str) -> str:
        resolved = outline.resolve(name, domain.name)
        if resolved is None or not resolved[1].is_record:
            raise EditError(
                "unknown_class",
                f"{where}: Ref[{name}] needs a record class: define it first, and write"
                " Ref[domain.Class] for a class in another domain",
            )
        owner, class_ = resolved
        return class_.name if owner.name == domain.name else f"{owner.name}.{class_.name}"

    type_ = parse_type(text)
    if ANY in parts(type_):
        raise EditError("bad_type", f"{where}: Any is no type of a field: write a type or a union")
    return map_names(type_, named=named, ref=ref)


def _check_class(class_: Class, where: str) -> None:
    names = [field.name for field in class_.fields]
    for name in names:
        if names.count(name) > 1:
            raise EditError("field_exists", f"{where} has the field {name!r} twice")
    for field in class_.fields:
        if isinstance(field.default, EnumMember) and field.default.class_name in names:
            raise EditError(
                "bad_name",
                f"{where}.{field.default.class_name} hides the enum that the default of "
                f"{field.name!r} comes from: choose another name",
            )


def add_field(project: Project, edit: AddField) -> None:
    """Add a field to a class; raises EditError if the edit is invalid."""
    domain, class_ = existing_class(project, edit.domain, edit.class_name)
    where = f"{edit.domain}.{edit.class_name}"
    if class_.field(edit.name):
        raise EditError(
            "field_exists", f"{where}.{edit.name} already exists: change it with widen_field"
        )
    field = _field(project, domain, edit, where)
    if field.default is REQUIRED:
        raise EditError(
            "no_default",
            f"{where}.{edit.name} needs a default, or a type with `| None`, because records may"
            " already exist",
        )
    _set_fields(project, domain, class_, (*class_.fields, field))


def widen_field(project: Project, edit: WidenField) -> None:
    """Give a field a wider type; raises EditError if the edit is invalid."""
    domain, class_ = existing_class(project, edit.domain, edit.class_name)
    old = _existing_field(class_, edit.name, edit.domain)
    where = f"{edit.domain}.{edit.class_name}.{edit.name}"
    type_ = _resolved(project, domain, edit.type, where)
    if not is_wider(type_, old.type):
        raise EditError(
            "narrower",
            f"{where} has type {format_type(old.type)}, which {format_type(type_)} does not"
            f" include: write {format_type(old.type)} | ...",
        )
    new = replace(old, type=type_)
    _set_fields(project, domain, class_, tuple(new if f is old else f for f in class_.fields))
    if class_.keeps_set_aside:
        _take_in(project, edit.domain, class_.name)


def _take_in(project: Project, domain_name: str, class_name: str) -> None:
    """Move values that were set aside and fit by now into the fields of a class's objects."""
    domain = project.outline.domains[domain_name]
    containing = _classes_containing(domain, class_name)
    for holder in domain.holders.values():
        if holder.class_name in containing and holder.set_aside:
            for record_id, _ in list(project.records(domain.name, holder.name)):
                project.restate(record_id, lambda record: take_in(record, domain))


def rename_field(project: Project, edit: RenameField) -> None:
    """Rename a field in a class and all of its records; raises EditError if the edit is invalid."""
    domain, class_ = existing_class(project, edit.domain, edit.class_name)
    old = _existing_field(class_, edit.name, edit.domain)
    where = f"{edit.domain}.{edit.class_name}"
    check_field_name(edit.new_name, where)
    new = replace(old, name=edit.new_name)
    fields = tuple(new if field is old else field for field in class_.fields)
    _check_class(replace(class_, fields=fields), where)

    def renamed(class_name: str, values: Mapping[str, Value]) -> dict[str, Value]:
        here = class_name == class_.name
        return {
            new.name if here and name == old.name else name: in_value(value)
            for name, value in values.items()
        }

    def in_value(value: Value) -> Value:
        if isinstance(value, list):
            return [in_value(item) for item in value]
        if isinstance(value, dict):
            return {key: in_value(item) for key, item in value.items()}
        if isinstance(value, Struct):
            return Struct(value.class_name, renamed(value.class_name, value.fields))
        return value

    containing = _classes_containing(domain, class_.name)
    records = [
        one
        for holder in domain.holders.values()
        if holder.class_name in containing
        for one in project.records(domain.name, holder.name)
    ]

    def rename(record: Record) -> Record:
        return replace(record, fields=renamed(record.class_name, record.fields))

    for record_id, record in records:
        project.restate(record_id, rename)
        if record.class_name == class_.name:
            project.note_set_renamed(record_id, old.name, new.name)
    _set_fields(project, project.outline.domains[domain.name], class_, fields)
    project.note_renamed(domain.name, class_.name, old.name)


def _classes_containing(domain: Domain, class_name: str) -> set[str]:
    """Return the names of the class and all classes whose objects can contain its objects."""
    names: set[str] = set()
    new = {class_name}
    while new:
        names |= new
        new = {
            c.name
            for c in domain.classes.values()
            for field in c.fields
            for part in parts(field.type)
            if isinstance(part, Named) and part.name in names
        } - names
    return names


def _set_fields(project: Project, domain: Domain, class_: Class, fields: tuple[Field, ...]) -> None:
    class_ = replace(class_, fields=fields)
    _check_class(class_, f"{domain.name}.{class_.name}")
    project.set_domain(domain.with_class(class_))


def existing_class(project: Project, domain_name: str, class_name: str) -> tuple[Domain, Class]:
    """Return a class and its domain; raises EditError if there is no such class."""
    domain = existing_domain(project, domain_name)
    if class_name not in domain.classes:
        choices = ", ".join(domain.classes) or "none"
        raise EditError(
            "unknown_class",
            f"{domain_name} has no class {class_name!r}: it has {choices}; define it with "
            f"define_class{places_of(project, class_name)}",
        )
    return domain, domain.classes[class_name]


def existing_domain(project: Project, name: str) -> Domain:
    """Return a domain; raises EditError if there is no such domain."""
    if name not in project.outline.domains:
        choices = ", ".join(project.outline.domains) or "none"
        raise EditError(
            "unknown_domain",
            f"there is no domain {name!r} (existing: {choices}): create it with define_class",
        )
    return project.outline.domains[name]


def places_of(project: Project, name: str) -> str:
    """Return a hint for error messages about where to find the records `name` may refer to.

    `name` may be a class, in singular or plural, or a collection in another domain.
    """
    guessed = {snake(name), singular(snake(name))}
    locations = [
        f"{holder.class_name} is in {domain.name}.{holder.name}"
        for domain in project.outline.domains.values()
        for holder in domain.holders.values()
        if guessed & {holder.name, snake(holder.class_name), default_collection(holder.class_name)}
    ]
    return f"; {', '.join(locations)}" if locations else ""


def _existing_field(class_: Class, name: str, domain: str) -> Field:
    field = class_.field(name)
    if field is None:
        choices = ", ".join(field.name for field in class_.fields) or "none"
        raise EditError(
            "unknown_field", f"{domain}.{class_.name} has no field {name!r}: it has {choices}"
        )
    return field


def check_new_holder(domain: Domain, name: str) -> None:
    """Reject a new collection's or singleton's name if it is invalid or taken."""
    check_lower_name(name, "collection")
    if name in domain.names():
        raise EditError(
            "collection_exists", f"{domain.name}.{name} already exists: choose another name"
        )
