"""Classes that a product prescribes for all users, written as schema modules, one per domain."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from memory.project.apply import apply
from memory.project.edits import AddField, DefineClass, Edit, WidenField
from memory.project.errors import EditError
from memory.project.files import edits_of_files
from memory.project.model import Project
from memory.project.outline import REQUIRED, Domain
from memory.project.types import format_type, is_optional, parse_type


def edits_of_modules(modules: Mapping[str, str]) -> list[Edit]:
    """Return the edits that define the classes of these modules, which are keyed by domain.

    Raises ProjectError for a module that isn't a schema, and EditError for classes that a project
    cannot have.
    """
    files = {Domain(name).schema_path: source for name, source in modules.items()}
    return edits_of_files(Project.empty(), files)


def adopt(project: Project, prescribed: Iterable[Edit]) -> list[Edit]:
    """Add to a project what it lacks of the prescribed classes; return the edits that were applied.

    Where the project has used a name for something else, it stays as it is.
    """
    applied = []
    for edit in prescribed:
        for missing in _missing(project, edit):
            with suppress(EditError):
                apply(project, missing)
                applied.append(missing)
    return applied


def _missing(project: Project, edit: Edit) -> Iterator[Edit]:
    """Return what the project lacks of a prescribed class, enum or field."""
    assert isinstance(edit, DefineClass | AddField)
    domain = project.outline.domains.get(edit.domain) or Domain(edit.domain)
    if isinstance(edit, AddField):
        class_ = domain.classes.get(edit.class_name)
        if class_ is not None and class_.field(edit.name) is None:
            yield edit
        return
    if edit.kind == "enum":
        declared_members = domain.enums[edit.name].members if edit.name in domain.enums else ()
        if more := tuple(member for member in edit.members if member not in declared_members):
            yield replace(edit, members=(*declared_members, *more))
        return
    class_ = domain.classes.get(edit.name)
    if class_ is None:
        yield edit
        return
    for spec in edit.fields:
        field = class_.field(spec.name)
        if field is None:
            # Records that exist already have no value for it.
            needs_none = spec.default is REQUIRED and not is_optional(parse_type(spec.type))
            type_ = f"{spec.type} | None" if needs_none else spec.type
            yield AddField(edit.domain, edit.name, spec.name, type_, spec.default, spec.original)
        elif format_type(field.type) != spec.type:
            yield WidenField(edit.domain, edit.name, spec.name, spec.type)
