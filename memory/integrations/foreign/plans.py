"""Plans: the edits and records that import a foreign project, and how they are applied."""

from collections.abc import Mapping
from dataclasses import dataclass

from memory.integrations.foreign.graph import Notes
from memory.integrations.foreign.placement import Home
from memory.project.apply import add_exactly, apply
from memory.project.conform import normal_fields
from memory.project.edits import Edit
from memory.project.model import Project
from memory.project.values import Record, RecordId, Struct, Value


@dataclass(frozen=True)
class PlacedRecord:
    """A record to add, and where it goes in the project."""

    home: Home
    class_name: str
    fields: Mapping[str, Value]


@dataclass
class Plan:
    """The schema edits and the records that import a foreign project."""

    schema: list[Edit]
    records: list[PlacedRecord]
    sources: tuple[int, ...]
    notes: Notes
    counts: dict[str, int]

    def carry_out(self, project: Project) -> list[Edit]:
        """Apply the plan to a project and return the edits.

        If EditError is raised, the project is left partly changed.
        """
        done = list(self.schema)
        for edit in self.schema:
            apply(project, edit)
        for placed in self.records:
            home = placed.home
            class_ = project.outline.domains[home.domain].classes[placed.class_name]
            fields = _normal(placed.fields, class_.name, project, home.domain)
            record_id = RecordId(home.domain, home.holder, home.key)
            record = Record(class_.name, home.key, fields, self.sources)
            done.append(add_exactly(project, record_id, record, singleton=home.singleton))
        return done


def _normal(
    fields: Mapping[str, Value], class_name: str, project: Project, domain: str
) -> dict[str, Value]:
    """Return fields in declared order and without default values, in nested objects, too."""
    class_ = project.outline.domains[domain].classes[class_name]

    def inner(value: Value) -> Value:
        if isinstance(value, list):
            return [inner(item) for item in value]
        if isinstance(value, Struct):
            return Struct(
                value.class_name, _normal(value.fields, value.class_name, project, domain)
            )
        return value

    return normal_fields({name: inner(value) for name, value in fields.items()}, class_)
