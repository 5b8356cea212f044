"""Widened fields: fields that typed entries have made optional or whose type they have widened.

A field becomes optional as soon as one record lacks it. From then on, code that relies on the field
fails until somebody adapts the code.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory.constraints.constraint_sources import reads_field, reads_of
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome, Outcome
from memory.project import AddField, DefineClass, Outline, WidenField, edit_from_json
from memory.project.paths import constraint_path
from memory.project.types import format_type
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint, Origin


@dataclass(frozen=True)
class Widened:
    """A field of a class whose type a typed entry has widened."""

    domain: str
    class_name: str
    field: str
    before: str
    after: str
    seq: int


def to_json(user: MemoryUser, seqs: Collection[int]) -> dict[str, Any]:
    """Return the fields widened by these typed entries, and the user's constraints to review."""
    widened = find_widened(user, seqs) if seqs else []
    return {
        "widened": [
            {
                "domain": one.domain,
                "class": one.class_name,
                "field": one.field,
                "from": one.before,
                "to": one.after,
                "seq": one.seq,
            }
            for one in widened
        ],
        "constraints_to_check": constraints_that_read(user, widened),
    }


def find_widened(user: MemoryUser, seqs: Collection[int]) -> list[Widened]:
    """Return the fields that these typed entries have widened, ordered by project version."""
    settled = EntryOutcome.objects.filter(user=user, seq__in=seqs, outcome=Outcome.COVERED)
    versions = Checkpoint.objects.filter(
        user=user, origin=Origin.RECORDS, pk__in=settled.values("checkpoint")
    )
    return [
        one
        for version in versions.only("parent", "edits").order_by("version")
        if any(edit["op"] == WidenField.op for edit in version.edits)
        for one in _find_widened_by(version)
        if one.seq in seqs
    ]


def constraints_that_read(user: MemoryUser, widened: Sequence[Widened]) -> list[str]:
    """Return the names of the user's own constraints that may read any of these fields.

    Only the constraints of the project's newest version are considered.
    """
    head = MemoryUser.objects.select_related("head").get(pk=user.pk).head
    if head is None or not widened:
        return []
    outline = Outline.from_json(head.outline)
    fields = [
        (domain, class_, field)
        for domain_name, class_name, field in {
            (one.domain, one.class_name, one.field) for one in widened
        }
        if (domain := outline.domains.get(domain_name))
        and (class_ := domain.classes.get(class_name))
    ]
    paths = {constraint_path(name): name for name in outline.constraints}
    sources = checkpoints.read_files(head, paths)
    reads = {name: reads_of(sources[path]) for path, name in paths.items()}
    return sorted(
        name for name, read in reads.items() if any(reads_field(read, *field) for field in fields)
    )


def _find_widened_by(version: Checkpoint) -> Iterator[Widened]:
    """Yield the fields widened by a version created from typed entries, each with its entry.

    The edit that adds a record cites the entry; the schema edits that the record needs precede that
    edit.
    """
    types = _types(Outline.from_json(version.parent.outline)) if version.parent else {}
    waiting: list[WidenField] = []
    for edit_json in version.edits:
        if edit_json.get("redacted"):  # the cited entry was redacted
            types |= {(one.domain, one.class_name, one.name): one.type for one in waiting}
            waiting = []
            continue
        edit = edit_from_json(edit_json)
        if isinstance(edit, WidenField):
            waiting.append(edit)
        elif isinstance(edit, AddField):
            types[edit.domain, edit.class_name, edit.name] = edit.type
        elif isinstance(edit, DefineClass):
            types |= {(edit.domain, edit.name, field.name): field.type for field in edit.fields}
        elif edit.sources:
            for wider in waiting:
                key = (wider.domain, wider.class_name, wider.name)
                yield Widened(*key, types[key], wider.type, max(edit.sources))
                types[key] = wider.type
            waiting = []


def _types(outline: Outline) -> dict[tuple[str, str, str], str]:
    return {
        (domain.name, class_.name, field.name): format_type(field.type)
        for domain in outline.domains.values()
        for class_ in domain.classes.values()
        for field in class_.fields
    }
