"""Describe a failed constraint: how severe the failure is, and what to fix."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memory.alerts.findings import ConstraintFinding, failure
from memory.constraints import applicability
from memory.constraints.constraint_sources import may_be_critical, optional_fields_at
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.project import Domain, Outline
from memory.recall import retrieval
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint
from workers.execution.errors import user_error_json
from workers.sandbox.results import ConstraintResult

# Errors that Python raises for an operation on None; the error messages contain "NoneType".
_ON_NONE = ("TypeError", "AttributeError")
_NONE = "NoneType"
# Maximum number of fields or records to name in the advice.
_NAMED = 3


def failures(
    checkpoint: Checkpoint,
    results: Sequence[ConstraintResult],
    applying: Collection[WorkspaceConstraint],
) -> list[ConstraintFinding]:
    """Return alerts that notify staff of constraints that ended with an error.

    The alert is critical if the constraint may raise critical alerts, since people rely on those.
    """
    errors = {
        result.path: user_error_json(result.error) for result in results if result.error is not None
    }
    if not errors:
        return []
    sources = sources_of(checkpoint, applying, errors.keys())
    outline = Outline.from_json(checkpoint.outline)
    return [
        failure(
            path,
            error,
            critical=may_be_critical(sources.get(path, "")),
            advice=_advice(
                checkpoint, outline, error, sources.get(path, "") if error["path"] == path else ""
            ),
        )
        for path, error in errors.items()
    ]


def sources_of(
    checkpoint: Checkpoint, applying: Collection[WorkspaceConstraint], paths: Collection[str]
) -> dict[str, str]:
    """Return the sources of these constraints, keyed by path.

    Users' own constraints are read from the version, workspace constraints from the workspace.
    """
    theirs = [one for one in applying if one.path in paths]
    live = applicability.read_live(theirs) if theirs else {}
    return {
        **checkpoints.read_files(checkpoint, paths),
        **{path: version.source for path, version in live.items()},
    }


def _advice(checkpoint: Checkpoint, outline: Outline, error: Mapping[str, Any], source: str) -> str:
    """Return what to fix if a constraint relied on a value that a record lacks."""
    if error["type"] not in _ON_NONE or _NONE not in error["message"]:
        return ""
    fields = optional_fields_at(source, error["line"], outline)
    named = [
        f"{domain.name}.{collection} {key!r} has no {field.name}"
        for domain, class_, field in fields
        for collection, key in _records_without(checkpoint, domain, class_.name, field.name)
    ]
    where = "A field that the constraint reads is empty in at least one record"
    if named:
        where += f" ({'; '.join(named[:_NAMED])})"
    elif fields:
        names = [f"{domain.name}.{class_.name}.{field.name}" for domain, class_, field in fields]
        where += f" (possibly {' or '.join(names[:_NAMED])})"
    return f"{where}: test for None first."


def _records_without(
    checkpoint: Checkpoint, domain: Domain, class_name: str, field: str
) -> Iterator[tuple[str, str]]:
    """For each collection of the class, yield the first record that lacks the field.

    Each record is yielded as its collection and key. Only the newest file of each collection is
    searched.
    """
    for name in domain.collections_of(class_name):
        page = len(domain.collections[name].shards)
        for record in retrieval.records_in(checkpoint, domain, name, page).records:
            if record["fields"].get(field) is None:
                yield name, record["key"]
                break
