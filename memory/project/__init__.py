"""A user's project as pure Python: the user's memory, stored as typed Python source.

    project = Project.open(outline, read, locate)      # nothing is read yet
    for edit in compile_record(project, entry):        # or edits from JSON: edit_from_json
        apply(project, edit)                           # EditError: the edit was rejected
    change = project.change()                          # new files, records, and outline

Files are parsed, never executed. `render` produces the canonical text of a project's files, and
`Project.from_files` parses that text into an equal project.
"""

from typing import Any

from memory.project.apply import apply
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
    Update,
    WidenField,
    WriteConstraint,
    edit_from_json,
    edit_to_json,
)
from memory.project.errors import EditError, ProjectError
from memory.project.manifest import manifest_text, render_manifest
from memory.project.model import Change, Locate, PlacedRecord, Project, Read, render
from memory.project.outline import (
    REQUIRED,
    Class,
    Collection,
    Domain,
    Enumeration,
    Field,
    Outline,
    Shard,
    Singleton,
)
from memory.project.records import RecordEntry, compile_record
from memory.project.typed import encode
from memory.project.values import (
    EnumMember,
    Location,
    PartialDate,
    Record,
    RecordId,
    Ref,
    Struct,
    Value,
)


def to_typed_json(value: Value | Record, project: Project, domain: str) -> Any:
    """Return a value or record in a domain as typed JSON, in the form of a sandbox dump."""
    return encode(value, project.outline.domains[domain])


__all__ = [
    "REQUIRED",
    "Add",
    "AddField",
    "Change",
    "Class",
    "Collection",
    "Conflict",
    "DefineClass",
    "DeleteConstraint",
    "Dismiss",
    "Domain",
    "Edit",
    "EditError",
    "EnumMember",
    "Enumeration",
    "Field",
    "FieldSpec",
    "Locate",
    "Location",
    "Note",
    "Outline",
    "PartialDate",
    "PlacedRecord",
    "Project",
    "ProjectError",
    "Read",
    "Record",
    "RecordEntry",
    "RecordId",
    "Ref",
    "RenameField",
    "Retire",
    "Shard",
    "Singleton",
    "Struct",
    "Update",
    "Value",
    "WidenField",
    "WriteConstraint",
    "apply",
    "compile_record",
    "edit_from_json",
    "edit_to_json",
    "manifest_text",
    "render",
    "render_manifest",
    "to_typed_json",
]
