"""Helpers with which the tests of the user project build their projects."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memory.project import (
    Change,
    Location,
    Outline,
    Project,
    RecordEntry,
    apply,
    compile_record,
    edit_from_json,
    render,
)

SILENT = "def check(today):\n    '''Never says anything.'''\n    return\n    yield\n"
TESTS = "def test_nothing():\n    assert True\n"


def edit(project: Project, op: str, **arguments: object) -> None:
    """Apply one edit given as JSON."""
    apply(project, edit_from_json({"op": op, **arguments}))


def project_with(*edits: Mapping[str, Any]) -> Project:
    project = Project.empty()
    for item in edits:
        edit(project, **item)
    return project


def define(
    domain: str, name: str, fields: Mapping[str, str] | None = None, **arguments: object
) -> dict[str, Any]:
    """Return the edit that defines a class with these fields and types."""
    specs = [{"name": field, "type": type_} for field, type_ in (fields or {}).items()]
    return {"op": "define_class", "domain": domain, "name": name, "fields": specs, **arguments}


def define_enum(domain: str, name: str, **members: str | int) -> dict[str, Any]:
    return define(domain, name, kind="enum", members=members)


def add(domain: str, class_name: str, key: str, **fields: object) -> dict[str, Any]:
    place = {"domain": domain, "class_name": class_name, "key": key}
    return {"op": "add", **place, "fields": fields, "sources": [1]}


def add_field(
    domain: str, class_name: str, name: str, type_: str, **default: object
) -> dict[str, Any]:
    """Return the edit that adds a field; `default` is its default, if it has one."""
    place = {"domain": domain, "class_name": class_name, "name": name}
    return {"op": "add_field", **place, "type": type_, **default}


def write(name: str, source: str = SILENT, tests: str = TESTS) -> dict[str, Any]:
    """Return the edit that writes a constraint and its tests."""
    return {"op": "write_constraint", "name": name, "source": source, "tests_source": tests}


def trips_project(count: int = 2) -> Project:
    """Return a domain `travel` with trips `trip-1`, `trip-2` ... of about 100 bytes each."""
    fields = {"to": "str", "starts_on": "datetime.date", "days": "int"}
    return project_with(define("travel", "Trip", fields), *map(trip, range(1, count + 1)))


def trip(number: int, **fields: object) -> dict[str, Any]:
    values = {"to": f"Town {number}", "starts_on": "2025-03-01", "days": number % 30, **fields}
    return {**add("travel", "Trip", f"trip-{number}", **values), "sources": [number]}


def remember(project: Project, type_: str, *data: Mapping[str, object], **entry: Any) -> None:
    """Compile and apply one entry of `type_` for each of `data`, in the domain `life`."""
    for number, item in enumerate(data, start=1):
        arguments: dict[str, Any] = {"seq": number, "domain": "life", "type": type_, **entry}
        for compiled in compile_record(project, RecordEntry(**arguments, data=item)):
            apply(project, compiled)


class Store:
    """Stands for the database: the files of a version, its outline, and where its keys are."""

    def __init__(self, project: Project) -> None:
        self.files = render(project)
        self.outline: dict[str, Any] = json.loads(json.dumps(project.outline.to_json()))
        self.reads: list[str] = []
        self.places: dict[tuple[str, str, str], Location] = {}
        for domain in project.outline.domains.values():
            for name in domain.holders:
                for record_id, _ in project.records(domain.name, name):
                    location = project.find(record_id)
                    assert location
                    self.places[record_id] = location
        change = project.change()
        for record_id in [*change.retired, *change.transient]:
            self.places[record_id] = Location("gone", retired=True)

    def open(self) -> Project:
        """Return the stored project, opened lazily."""
        self.reads = []
        return Project.open(Outline.from_json(self.outline), self._read, self._locate)

    def keep(self, change: Change) -> None:
        """Store a change, as a new version would be."""
        for path, text in change.files.items():
            if text is None:
                del self.files[path]
            else:
                self.files[path] = text
        self.outline = change.outline.to_json()
        for record_id, placed in change.records.items():
            before = self.places.get(record_id, Location(""))
            self.places[record_id] = before._replace(path=placed.path, retired=False)
        for record_id in change.retired:
            self.places[record_id] = self.places[record_id]._replace(retired=True)
        for record_id in change.transient:
            self.places.setdefault(record_id, Location("gone", retired=True))
        for record_id, sources in change.ended.items():
            self.places[record_id] = self.places[record_id]._replace(ended_by=max(sources))

    def _read(self, path: str) -> str:
        self.reads.append(path)
        return self.files[path]

    def _locate(self, domain: str, collection: str, key: str) -> Location | None:
        return self.places.get((domain, collection, key))


def changed_paths(change: Change) -> Sequence[str]:
    return sorted(change.files)
