"""Changes given as whole files: edited files from a project, or an entire project to import.

The files are in the project's own format. They are compared with the current project, and every
difference becomes an edit. A difference that no edit can express is rejected, never ignored, so a
file that accidentally omits a record doesn't retire it.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from memory.kernel.texts import parse_valid
from memory.project.apply import add_exactly, add_of, apply
from memory.project.edits import (
    AddField,
    DefineClass,
    DeleteConstraint,
    Edit,
    FieldSpec,
    Kind,
    Update,
    WidenField,
    WriteConstraint,
)
from memory.project.errors import EditError, ProjectError
from memory.project.literals import same
from memory.project.loading import load, load_domain
from memory.project.model import Project
from memory.project.outline import REQUIRED, Class, Domain, Enumeration, Outline
from memory.project.parse import imported_names
from memory.project.paths import constraint_files, constraint_path, constraint_tests_path
from memory.project.schema_edits import check_new_holder
from memory.project.types import format_type, parse_type
from memory.project.values import Record, RecordId

# Maximum number of omitted records named in an error message.
MAX_NAMED = 10


def edits_of_files(project: Project, files: Mapping[str, str | None]) -> list[Edit]:
    """Edit the project so that its files match the given files, and return the edits.

    `files` maps each changed file's path to its new text, or to None to delete a constraint.
    Generated files may be included but are ignored. Raises ProjectError if a file can't be read,
    and EditError if a difference can't be expressed as edits.
    """
    files = {path: text for path, text in files.items() if not _is_generated(path, text)}
    domains = [
        _read(project, name, {path: files[path] for path in files if _domain_of(path) == name})
        for name in sorted({name for name in map(_domain_of, files) if name})
    ]
    # Define the classes in all domains before adding any records, since a record may refer to a
    # record in another domain.
    edits = _applied(project, [edit for one in domains for edit in _of_schema(one.old, one.new)])
    for one in domains:
        edits += _applied(project, _of_records(one.new, one.before, one.after))
    rest = {path: text for path, text in files.items() if not _domain_of(path)}
    return [*edits, *_applied(project, _of_constraints(project, rest))]


@dataclass(frozen=True)
class Whole:
    """A complete, parsed project.

    `records` is keyed by file path, then by collection or singleton name, then by record key.
    """

    files: Mapping[str, str]
    outline: Outline
    records: Mapping[str, Mapping[str, Mapping[str, Record]]]


def read_whole(files: Mapping[str, str]) -> Whole:
    """Parse an entire project for import; raises ProjectError if it is not in our format."""
    outline, records = load(files)
    if not outline.domains and not outline.constraints:
        raise ProjectError("manifest.py", "contains neither a domain nor a constraint")
    tests = {constraint_tests_path(name) for name in outline.constraints}
    if strange := tests ^ set(outline.tests):
        raise ProjectError(min(strange), "a constraint and its tests must both be present")
    for path in (constraint_path(name) for name in outline.constraints):
        if is_old_constraint(files[path]):
            raise ProjectError(path, "is an old-style constraint, which does not import uac")
    return Whole(files, outline, records)


def is_old_constraint(source: str) -> bool:
    """Return whether the source is a constraint in the style of projects that do not import `uac`.

    Such a module has `check(project_path)` or `check_constraints(current_time)`, which returns a
    list of dictionaries.
    """
    tree = parse_valid(source)
    if tree is None:
        return False
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return bool(functions & {"check", "check_constraints"}) and not any(
        name.partition(".")[0] == "uac" for name in imported_names(tree)
    )


def take_over(project: Project, whole: Whole, sources: tuple[int, ...]) -> list[Edit]:
    """Add the contents of another project to this one, and return the edits that were applied.

    The added records cite `sources`, since their original sources are entries in another log.
    Everything else stays as it was in the other project, including the order of classes, fields and
    collections. Raises EditError if a name already exists or is not allowed, and ProjectError if
    one of the classes or enums can't be produced by edits.
    """
    outline = whole.outline
    for kind, names in (
        ("domain", outline.domains.keys() & project.outline.domains.keys()),
        ("constraint", outline.constraints.keys() & project.outline.constraints.keys()),
    ):
        if names:
            raise EditError(
                f"{kind}_exists",
                f"the project already has a {kind} {min(names)!r}: import it for a user without a"
                " project",
            )
    schema = [
        edit
        for domain in outline.domains.values()
        for edit in _of_schema(Domain(domain.name), domain)
    ]
    # Omit the collections: `_take_over_order` creates them in their original order.
    bare = [
        replace(_unambiguous(e, outline), collection=None) if isinstance(e, DefineClass) else e
        for e in schema
    ]
    _applied(project, bare)
    edits = schema
    for domain in outline.domains.values():
        _take_over_order(project, domain)
    for path, contents in whole.records.items():
        domain = outline.domains[_domain_of(path)]
        for name, by_key in contents.items():
            for record in by_key.values():
                record_id = RecordId(domain.name, name, record.key)
                exact = replace(record, sources=sources)
                singleton = name in domain.singletons
                edits.append(add_exactly(project, record_id, exact, singleton=singleton))
    constraints = [
        WriteConstraint(
            name,
            whole.files[constraint_path(name)],
            whole.files[constraint_tests_path(name)],
            sources,
        )
        for name in outline.constraints
    ]
    return [*edits, *_applied(project, constraints)]


def _unambiguous(edit: DefineClass, outline: Outline) -> DefineClass:
    """Return the edit with ambiguous class names in its field types qualified by their domain.

    If another domain has a class with the same name, the unqualified name would refer to that class
    until the class in this domain is defined.
    """
    others = {
        name
        for domain in outline.domains.values()
        if domain.name != edit.domain
        for name in domain.classes
    }
    own = {
        class_.name: f"{edit.domain}.{class_.name}"
        for class_ in outline.domains[edit.domain].classes.values()
        if class_.is_record and class_.name in others
    }
    if not own:
        return edit
    typed = (replace(one, type=format_type(parse_type(one.type), own)) for one in edit.fields)
    return replace(edit, fields=tuple(typed))


def _take_over_order(project: Project, domain: Domain) -> None:
    """Restore the original order of a domain's classes, fields and collections."""
    made = project.outline.domains[domain.name]
    for class_ in domain.classes.values():
        class_made = made.classes[class_.name]
        order = [class_made.field(field.name) or field for field in class_.fields]
        if (
            len(class_made.fields) != len(order)
            or replace(class_made, fields=tuple(order)) != class_
        ):
            raise ProjectError(domain.schema_path, f"{class_.name} cannot be produced by edits")
    if made.enums != domain.enums:
        raise ProjectError(domain.schema_path, "has an enum that cannot be produced by edits")
    project.set_domain(replace(made, classes=domain.classes, enums=domain.enums))
    for collection in domain.collections.values():
        check_new_holder(project.outline.domains[domain.name], collection.name)
        project.add_collection(domain.name, collection.name, collection.class_name)


def _applied(project: Project, edits: Iterable[Edit]) -> list[Edit]:
    """Apply the edits in an order in which each succeeds, and return them in that order.

    If there is no such order because classes refer to each other, the reference fields are added
    after the classes.
    """
    waiting = list(edits)
    done: list[Edit] = []
    while waiting:
        refusals = []
        for edit in waiting:
            try:
                apply(project, edit)
            except EditError as error:
                refusals.append((edit, error))
            else:
                done.append(edit)
        if len(refusals) == len(waiting):
            waiting = _without_references(*refusals[0]) + waiting[1:]
        else:
            waiting = [edit for edit, _ in refusals]
    return done


def _without_references(edit: Edit, refusal: EditError) -> list[Edit]:
    """Return a class definition without its reference fields, then edits that add those fields.

    Raises `refusal` if the edit doesn't define a class with reference fields.
    """
    if not isinstance(edit, DefineClass):
        raise refusal
    references = [field for field in edit.fields if "Ref[" in field.type]
    if not references:
        raise refusal
    fields = tuple(field for field in edit.fields if field not in references)
    return [
        replace(edit, fields=fields),
        *(
            AddField(edit.domain, edit.name, field.name, field.type, field.default, field.original)
            for field in references
        ),
    ]


def _is_generated(path: str, text: str | None) -> bool:
    """Return whether a file is generated, i.e. is the manifest or an empty `__init__.py`."""
    return path == "manifest.py" or (path.endswith("__init__.py") and not (text or "").strip())


def _domain_of(path: str) -> str:
    """Return the name of the domain a file belongs to, or "" if it belongs to none."""
    parts = path.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "domains" else ""


@dataclass(frozen=True)
class _Read:
    """A domain and its records, before and after the given files are applied."""

    old: Domain
    new: Domain
    before: Mapping[RecordId, Record]
    after: Mapping[RecordId, Record]


def _read(project: Project, name: str, files: Mapping[str, str | None]) -> _Read:
    """Parse a domain including its changed and new files; raises EditError if they omit records."""
    old = project.outline.domains.get(name) or Domain(name)
    texts: dict[str, str] = {}
    if name in project.outline.domains:
        texts = {path: project.source(path) for path in (old.schema_path, *old.state_paths())}
    for path, text in files.items():
        if text is None:
            raise EditError(
                "file_deleted", f"{path} cannot be deleted: retire its records with edits"
            )
        texts[path] = text
    if old.schema_path not in texts:
        raise ProjectError(old.schema_path, "is missing: the domain does not exist yet")
    new, records = load_domain(name, texts)
    if strange := sorted(texts.keys() - {new.schema_path, *new.state_paths()}):
        raise ProjectError(
            strange[0], "does not belong to the domain: no collection continues in it"
        )
    before = {
        record_id: record
        for held in old.holders
        for record_id, record in project.records(name, held)
    }
    after = {
        RecordId(name, collection, key): record
        for contents in records.values()
        for collection, by_key in contents.items()
        for key, record in by_key.items()
    }
    if lost := [".".join(record_id) for record_id in before if record_id not in after]:
        raise EditError(
            "record_lost",
            f"the files omit {', '.join(lost[:MAX_NAMED])}"
            + (f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else "")
            + ": include them, or retire them with edits in the same proposal",
        )
    return _Read(old, new, before, after)


def _of_schema(old: Domain, new: Domain) -> Iterator[Edit]:
    where = f"domains/{new.name}/schema.py"
    for kind, gone in (
        ("class", old.classes.keys() - new.classes.keys()),
        ("enum", old.enums.keys() - new.enums.keys()),
    ):
        if gone:
            raise EditError("class_lost", f"{where} omits the {kind} {min(gone)}: include it")
    for enumeration in new.enums.values():
        if enumeration != old.enums.get(enumeration.name):
            yield _define_enum(new, enumeration)
    for class_ in new.classes.values():
        if class_.name in old.classes:
            yield from _of_class(new, old.classes[class_.name], class_, where)
        else:
            yield _define_class(new, class_)


def _define_enum(domain: Domain, enumeration: Enumeration) -> Edit:
    return DefineClass(
        domain.name, enumeration.name, kind="enum", members=enumeration.members, doc=enumeration.doc
    )


def _define_class(domain: Domain, class_: Class) -> Edit:
    kind: Kind = "record" if class_.is_record else "object"
    fields = tuple(
        FieldSpec(f.name, format_type(f.type), f.default, f.original) for f in class_.fields
    )
    collection = next(iter(domain.collections_of(class_.name)), None)
    return DefineClass(
        domain.name, class_.name, fields, kind, collection=collection, doc=class_.doc
    )


def _of_class(domain: Domain, old: Class, new: Class, where: str) -> Iterator[Edit]:
    named = f"{where}: {new.name}"
    if (old.is_record, old.doc) != (new.is_record, new.doc):
        raise EditError(
            "class_changed", f"{named} has a different base class or docstring: keep the old ones"
        )
    if gone := [field.name for field in old.fields if new.field(field.name) is None]:
        raise EditError(
            "field_lost", f"{named} omits the field {gone[0]!r}: keep it, or rename it with an edit"
        )
    for field in new.fields:
        old_field = old.field(field.name)
        type_ = format_type(field.type)
        if old_field is None:
            default, original = field.default, field.original
            yield AddField(domain.name, new.name, field.name, type_, default, original)
            continue
        if old_field.type != field.type:
            yield WidenField(domain.name, new.name, field.name, type_)
        elif (old_field.default, old_field.original) != (field.default, field.original):
            raise EditError(
                "default_changed",
                f"{named}.{field.name} has a different default or original name: keep the old one",
            )


def _of_records(
    domain: Domain, before: Mapping[RecordId, Record], after: Mapping[RecordId, Record]
) -> Iterator[Edit]:
    for record_id, record in after.items():
        old = before.get(record_id)
        if old is None:
            singleton = record_id.collection in domain.singletons
            yield add_of(record_id, record, singleton=singleton)
            continue
        if old.class_name != record.class_name:
            raise EditError(
                "class_changed", f"{'.'.join(record_id)} has a different class: keep the old one"
            )
        changed = _changed(domain.classes[record.class_name], old, record)
        if changed or set(record.sources) - set(old.sources):
            yield Update(*record_id, changed, record.sources)


def _changed(class_: Class, old: Record, new: Record) -> dict[str, object]:
    """Return those fields of a record whose values changed; omitted fields have their defaults."""
    values = {
        field.name: (
            old.fields.get(field.name, field.default),
            new.fields.get(field.name, field.default),
        )
        for field in class_.fields
    }
    return {
        name: value
        for name, (was, value) in values.items()
        if value is not REQUIRED and (was is REQUIRED or not same(was, value))
    }


def _of_constraints(project: Project, files: Mapping[str, str | None]) -> Iterator[Edit]:
    names = set()
    for path in files:
        folder, _, file = path.partition("/")
        name = file.removesuffix(".py").removeprefix("test_" if folder == "tests" else "")
        form = constraint_tests_path(name) if folder == "tests" else constraint_path(name)
        if path != form or not name.isidentifier():
            raise ProjectError(
                path,
                "is not among the files that can be proposed: domains/<domain>/schema.py and"
                " state.py with its shards, constraints/<name>.py, tests/test_<name>.py",
            )
        names.add(name)
    for name in sorted(names):
        is_existing = name in project.outline.constraints
        paths = constraint_files(name)
        before = [project.source(path) if is_existing else None for path in paths]
        source, tests = (files.get(path, old) for path, old in zip(paths, before, strict=True))
        if source is None and paths[0] in files:
            yield DeleteConstraint(name)
        elif source is None or tests is None:
            missing = paths[0] if source is None else paths[1]
            raise ProjectError(
                missing, "is missing: a constraint and its tests must both be present"
            )
        elif [source, tests] != before:
            yield WriteConstraint(name, source, tests)
