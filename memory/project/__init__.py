"""A user's project as pure Python: the user's memory, stored as typed Python source.

    project = Project.open(outline, read, locate)      # nothing is read yet
    for edit in compile_record(project, entry):        # or edits from JSON: edit_from_json
        apply(project, edit)                           # EditError: the edit was rejected
    change = project.change()                          # new files, records, and outline

Files are parsed, never executed. `render` produces the canonical text of a project's files, and
`Project.from_files` parses that text into an equal project.
"""

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
    RetireEarlier,
    Update,
    WidenField,
    WriteConstraint,
    edit_from_json,
    edit_to_json,
    proposal_from_json,
)
from memory.project.errors import EditError, ProjectError
from memory.project.manifest import manifest_text, render_manifest
from memory.project.model import Change, Project, render
from memory.project.outline import Domain, Outline
from memory.project.records import RecordEntry, compile_record, set_aside_by
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

__all__ = [
    "Add",
    "AddField",
    "Change",
    "Conflict",
    "DefineClass",
    "DeleteConstraint",
    "Dismiss",
    "Domain",
    "Edit",
    "EditError",
    "EnumMember",
    "FieldSpec",
    "Location",
    "Note",
    "Outline",
    "PartialDate",
    "Project",
    "ProjectError",
    "Record",
    "RecordEntry",
    "RecordId",
    "Ref",
    "RenameField",
    "Retire",
    "RetireEarlier",
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
    "proposal_from_json",
    "render",
    "render_manifest",
    "set_aside_by",
]
