"""The project: a user's memory as typed records, opened lazily and modified in place.

A project knows its outline and reads files with records only when needed: appending to a collection
of fifty thousand records parses and writes only its last shard. Edits go through
`memory.project.apply`, which ensures that a rejected edit leaves the project unchanged; the
mutating methods here trust their arguments.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from memory.project.errors import EditError, ProjectError
from memory.project.folding import EarlierEntries, Remark
from memory.project.literals import Uses, record_literal
from memory.project.loading import load
from memory.project.manifest import render_manifest
from memory.project.outline import Collection, Domain, Outline, Shard, Singleton
from memory.project.parse import documentation, parse_state, uses_of_name
from memory.project.paths import (
    constraint_files,
    constraint_path,
    constraint_tests_path,
    domain_name,
)
from memory.project.render import FileRecords, record_size, render_schema, render_state
from memory.project.set_aside import count_set_aside
from memory.project.values import Location, Record, RecordId

# No file is larger than 64 KiB: a shard has up to 60 KiB of records, and the remainder is for its
# imports. In state.py, half of the 64 KiB is reserved for the list of shards, which grows over
# time. There are two exceptions: a single record larger than the limit, and a record that grows
# when an update changes it in place.
SHARD_BYTES = 60 * 1024
STATE_BYTES = 32 * 1024

Read: TypeAlias = Callable[[str], str]
Locate: TypeAlias = Callable[[str, str, str], Location | None]


@dataclass(frozen=True)
class PlacedRecord:
    """A record and its file's path."""

    path: str
    record: Record


@dataclass(frozen=True)
class Change:
    """The changes to a project since it was opened.

    `files` maps the path of every changed file to its new text, or to None if it was deleted.
    `records` has every record that was added or updated. `transient` lists the records that were
    both added and retired since the project was opened, or retired without having existed: they are
    in no file. `retired_by` maps each retired record to the entries cited by the edit that retired
    it. `ended` has every record that an edit retired, even if only what was said before a certain
    entry, or if the record has come back; it maps each to the entries among which the one that
    counts as its last retirement is the newest. `remarks` says why entries changed less than they
    say, by their numbers. `set_by` maps each field of an updated record to the
    entries cited by the edits that set it. `derived` has the fields that an edit marked as derived,
    each with the reason. `as_named` has the earlier states of updated records, with renamed fields
    under their current names; it is empty if a renamed field's old name now belongs to another
    field.
    """

    files: Mapping[str, str | None]
    outline: Outline
    added: list[RecordId]
    updated: list[RecordId]
    retired: list[RecordId]
    retired_by: Mapping[RecordId, Sequence[int]]
    transient: list[RecordId]
    ended: Mapping[RecordId, Sequence[int]]
    remarks: Mapping[int, Remark]
    records: Mapping[RecordId, PlacedRecord]
    files_parsed: int
    files_rendered: int
    expected: Mapping[str, FileRecords]
    previous: Mapping[str, FileRecords]
    derived: Mapping[RecordId, Mapping[str, str]]
    set_by: Mapping[RecordId, Mapping[str, Sequence[int]]]
    as_named: Mapping[RecordId, Record]

    def records_in(self, path: str) -> dict[str, list[Record]]:
        """Return a changed file's current records, keyed by collection or singleton."""
        return _lists(self.expected.get(path, {}))

    def previous_records_in(self, path: str) -> dict[str, list[Record]]:
        """Return the records a changed file had when the project was opened, if it existed then."""
        return _lists(self.previous.get(path, {}))


class Project:
    """One user's project. Create it with `empty`, `from_files` or `open`.

    To compile late entries, set `earlier`; without it, every entry is newer than the ones before.
    """

    def __init__(
        self,
        outline: Outline,
        read: Read,
        locate: Locate,
        stored_paths: Iterable[str],
        time_zone: datetime.tzinfo = datetime.UTC,
    ) -> None:
        self.outline = outline
        self.time_zone = time_zone
        self.files_parsed = 0
        self.earlier: EarlierEntries | None = None
        self._opened = outline
        self._paths_opened = frozenset(stored_paths)
        self._read = read
        self._locate = locate
        self._records: dict[str, dict[str, dict[str, Record]]] = {}
        self._originals: dict[str, FileRecords] = {}
        self._places: dict[RecordId, Location | None] = {}
        self._before: dict[RecordId, Record | None] = {}
        self._written: dict[str, str] = {}
        self._touched: set[str] = set()
        self._renamed: list[tuple[str, str, str]] = []
        self._derived: dict[RecordId, dict[str, str]] = {}
        self._retired_by: dict[RecordId, Sequence[int]] = {}
        self._ended: dict[RecordId, Sequence[int]] = {}
        self._remarks: dict[int, Remark] = {}
        self._set_by: dict[RecordId, dict[str, Sequence[int]]] = {}
        self._as_named: dict[RecordId, Record] = {}

    @classmethod
    def empty(cls, time_zone: datetime.tzinfo = datetime.UTC) -> "Project":
        """Return a project with no content; for `time_zone`, see `open`."""
        return cls(Outline(), dict[str, str]().__getitem__, lambda *_: None, (), time_zone)

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> "Project":
        """Parse all files in a tree, and return the project they make up.

        Raises ProjectError for a file that can't be read. The files don't contain the keys of
        retired records: if you need these, use `open` and pass `locate`.
        """
        outline, records = load(files)
        places = {
            (domain_name(path), name, key): Location(path)
            for path, contents in records.items()
            for name, by_key in contents.items()
            for key in by_key
        }
        locate: Locate = lambda domain, name, key: places.get((domain, name, key))  # noqa: E731
        project = cls(outline, files.__getitem__, locate, files)
        for path, contents in records.items():
            project._keep(path, contents)
        return project

    @classmethod
    def open(
        cls,
        outline: Outline,
        read: Read,
        locate: Locate,
        time_zone: datetime.tzinfo = datetime.UTC,
    ) -> "Project":
        """Return a stored project, whose files are read only when needed.

        `read(path)` returns a file's source. `locate(domain, collection, key)` returns a record's
        location, even if the record is retired, or None if the key was never used. Datetimes
        without an offset are in `time_zone`, which is the user's.
        """
        return cls(outline, read, locate, outline.paths(), time_zone)

    # Reading the project

    def find(self, record_id: RecordId) -> Location | None:
        """Return a record's location, even if it is retired; None if the key was never used."""
        if record_id not in self._places:
            self._places[record_id] = self._locate(*record_id)
        return self._places[record_id]

    def record(self, record_id: RecordId) -> Record | None:
        """Return a record, or None if it does not exist or was retired."""
        location = self.find(record_id)
        if location is None or location.retired:
            return None
        by_key = self.records_of(location.path).get(record_id.collection, {})
        if record_id.key not in by_key:
            raise ProjectError(
                location.path, f"does not contain {record_id}, although the index says that it does"
            )
        return by_key[record_id.key]

    def records(self, domain: str, name: str) -> Iterator[tuple[RecordId, Record]]:
        """Yield the records in a collection or singleton, reading all of its shards."""
        collection = self.outline.domains[domain].collections.get(name)
        paths = [self.outline.domains[domain].state_path]
        for path in [shard.path for shard in collection.shards] if collection else paths:
            for key, record in list(self.records_of(path).get(name, {}).items()):
                yield RecordId(domain, name, key), record

    def records_of(self, path: str) -> dict[str, dict[str, Record]]:
        """Return a file's records, keyed by collection or singleton name, then by record key."""
        if path not in self._records:
            contents: dict[str, dict[str, Record]] = {}
            if path in self._paths_opened:
                domain = self.outline.domains[domain_name(path)]
                contents = parse_state(path, self._read(path), domain).records
                self.files_parsed += 1
            self._keep(path, contents)
        return self._records[path]

    def source(self, path: str) -> str:
        """Return the text of any file in the tree as it would be stored now."""
        if path in self._written:
            return self._written[path]
        if path == "manifest.py":
            return render_manifest(self.outline)
        if path.endswith("/__init__.py"):
            return ""
        if not path.startswith("domains/"):
            return self._read(path)
        domain = self.outline.domains[domain_name(path)]
        if path == domain.schema_path:
            return render_schema(domain)
        return render_state(domain, path, self.records_of(path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Project):
            return NotImplemented
        if self.outline != other.outline:
            return False
        states = self._state_paths()
        return all(
            self.records_of(path) == other.records_of(path)
            if path in states
            else self.source(path) == other.source(path)
            for path in self.outline.paths()
        )

    __hash__ = None  # type: ignore[assignment]

    # Changing the project

    def set_domain(self, domain: Domain) -> None:
        """Set a domain's schema, collections and singletons."""
        self.outline = self.outline.with_domain(domain)

    def add_collection(self, domain_name: str, name: str, class_name: str) -> None:
        """Add an empty collection to a domain."""
        domain = self.outline.domains[domain_name]
        shards = (Shard(domain.state_path),)
        self.records_of(domain.state_path)[name] = {}
        self._touched.add(domain.state_path)
        self.set_domain(domain.with_collection(Collection(name, class_name, shards)))

    def add(self, record_id: RecordId, record: Record, *, singleton: bool = False) -> None:
        """Add a new record at the end of its collection, or as a singleton."""
        domain = self.outline.domains[record_id.domain]
        if singleton:
            path = domain.state_path
            held = Singleton(record_id.collection, record.class_name)
            self.set_domain(domain.with_singleton(held))
        else:
            path = self._shard_with_room(domain, record_id.collection, record_size(record))
        self.records_of(path).setdefault(record_id.collection, {})
        before = self.find(record_id)
        self._places[record_id] = Location(path, ended_by=before.ended_by if before else None)
        self._put(record_id, record)

    def replace(self, record_id: RecordId, record: Record) -> None:
        """Replace the record that has this id."""
        self._put(record_id, record)

    def remove(self, record_id: RecordId, sources: Sequence[int]) -> None:
        """Retire a record, citing these entries, or remove it as if it had never existed."""
        record = self.record(record_id)
        self._put(record_id, None)
        self._retired_by[record_id] = sources
        if sources and record:
            self.note_ended(record_id, sources)
            self._ended[record_id] = (*sources, *record.sources)
        domain = self.outline.domains[record_id.domain]
        if record_id.collection in domain.singletons:
            del self.records_of(domain.state_path)[record_id.collection]
            self.set_domain(domain.without_singleton(record_id.collection))

    def write_constraint(self, name: str, source: str, tests: str) -> None:
        """Write a constraint and its tests."""
        self.outline = self.outline.with_constraint(name, documentation(source))
        self._written[constraint_path(name)] = source
        self._written[constraint_tests_path(name)] = tests

    def delete_constraint(self, name: str) -> None:
        """Remove a constraint and its tests."""
        self.outline = self.outline.without_constraint(name)
        for path in constraint_files(name):
            self._written.pop(path, None)

    def note_renamed(self, domain: str, class_name: str, field: str) -> None:
        """Record that a field was renamed; `change` checks that nothing uses the old name."""
        self._renamed.append((domain, class_name, field))

    def note_ended(self, record_id: RecordId, sources: Sequence[int]) -> None:
        """Record that these entries retired what was said of a record before."""
        location = self.find(record_id)
        if location is None:
            location = Location("", retired=True)
            self._before.setdefault(record_id, None)
        self._places[record_id] = location._replace(ended_by=max(sources))
        self._ended[record_id] = sources

    def note_remark(self, seq: int, remark: Remark) -> None:
        """Record why an entry changes less than it says."""
        self._remarks[seq] = remark

    def note_derived(self, record_id: RecordId, reasons: Mapping[str, str]) -> None:
        """Record which of a record's fields are derived from entries rather than stated in them."""
        self._derived.setdefault(record_id, {}).update(reasons)

    def note_set(self, record_id: RecordId, fields: Iterable[str], sources: Sequence[int]) -> None:
        """Record the entries cited by an edit that sets these fields of a record."""
        set_by = self._set_by.setdefault(record_id, {})
        set_by |= {name: (*set_by.get(name, ()), *sources) for name in fields}

    def note_set_renamed(self, record_id: RecordId, name: str, new_name: str) -> None:
        """Move the entries recorded for a field to its new name."""
        set_by = self._set_by.get(record_id, {})
        if name in set_by:
            set_by[new_name] = set_by.pop(name)

    def restate(self, record_id: RecordId, form: Callable[[Record], Record]) -> None:
        """Give a record another form without another meaning, such as other names of fields.

        Its earlier state gets the same form, so that comparing the two shows no change.
        """
        record = self.record(record_id)
        assert record is not None, f"{record_id} does not exist"
        formed = form(record)
        if formed == record:
            return
        self.replace(record_id, formed)
        before = self._as_named.get(record_id) or self._before.get(record_id)
        if before is not None:
            self._as_named[record_id] = form(before)

    def change(self) -> Change:
        """Return the changes since the project was opened; can be called repeatedly.

        Raises EditError if a constraint or test still uses the old name of a renamed field.
        """
        self._check_renamed()
        files: dict[str, str | None] = {}
        for path in self._suspects():
            text = self.source(path)
            if path not in self._paths_opened or text != self._read(path):
                files[path] = text
        paths = self.outline.paths()
        files |= dict.fromkeys(sorted(self._paths_opened.difference(paths)))
        before = self._before.items()
        now = {record_id: self.record(record_id) for record_id in self._before}
        added = [i for i, old in before if not old and now[i]]
        updated = [i for i, old in before if old and now[i] and not same_record(old, now[i])]
        retired = [i for i, old in before if old and not now[i]]
        changed_states = self._state_paths() & files.keys()
        return Change(
            files=dict(sorted(files.items())),
            outline=self.outline,
            added=added,
            updated=updated,
            retired=retired,
            retired_by={i: self._retired_by[i] for i in retired},
            transient=[i for i, old in before if not old and not now[i]],
            ended=dict(self._ended),
            remarks=dict(self._remarks),
            records={i: self._placed(i) for i in (*added, *updated)},
            files_parsed=self.files_parsed,
            files_rendered=sum(text is not None for text in files.values()),
            expected={path: _copy(self.records_of(path)) for path in changed_states},
            previous={path: self._originals[path] for path in changed_states},
            derived={i: dict(self._derived[i]) for i in (*added, *updated) if i in self._derived},
            set_by={i: dict(self._set_by[i]) for i in updated if i in self._set_by},
            as_named={}
            if self._is_named_anew()
            else {i: self._as_named[i] for i in updated if i in self._as_named},
        )

    # Keeping track of changes

    def _is_named_anew(self) -> bool:
        """Return whether a renamed field's old name now belongs to another field.

        If so, it would be misleading to give a record's earlier state the current field names.
        """
        classes = [(self.outline.domains[domain], name, old) for domain, name, old in self._renamed]
        return any(
            field.name == old
            for domain, name, old in classes
            for field in domain.classes[name].fields
        )

    def _keep(self, path: str, contents: dict[str, dict[str, Record]]) -> None:
        self._records[path] = contents
        self._originals[path] = _copy(contents)

    def _path(self, record_id: RecordId) -> str:
        location = self.find(record_id)
        assert location, f"{record_id} does not exist"
        return location.path

    def _placed(self, record_id: RecordId) -> PlacedRecord:
        path = self._path(record_id)
        return PlacedRecord(path, self.records_of(path)[record_id.collection][record_id.key])

    def _shard_with_room(self, domain: Domain, name: str, size: int) -> str:
        """Return the collection's last file, or a new one if `size` bytes don't fit into it."""
        collection = domain.collections[name]
        path = collection.shards[-1].path
        used = domain.records_size(path)
        limit = STATE_BYTES if path == domain.state_path else SHARD_BYTES
        if used + size <= limit or (used == 0 and path != domain.state_path):
            return path
        path = domain.shard_path(name, len(collection.shards) + 1)
        shards = (*collection.shards, Shard(path))
        self._touched.add(domain.state_path)
        self.set_domain(domain.with_collection(replace(collection, shards=shards)))
        return path

    def _put(self, record_id: RecordId, record: Record | None) -> None:
        path = self._path(record_id)
        by_key = self.records_of(path)[record_id.collection]
        old = by_key.get(record_id.key)
        self._before.setdefault(record_id, old)
        self._touched.add(path)
        if record is None:
            del by_key[record_id.key]
            location = self.find(record_id)
            assert location, "it has just been found"
            self._places[record_id] = location._replace(retired=True)
        else:
            by_key[record_id.key] = record
        size = (record_size(record) if record else 0) - (record_size(old) if old else 0)
        set_aside = count_set_aside(record) - count_set_aside(old)
        self._resize(record_id, path, (record is not None) - (old is not None), size, set_aside)

    def _resize(
        self, record_id: RecordId, path: str, count: int, size: int, set_aside: int
    ) -> None:
        domain = self.outline.domains[record_id.domain]
        collection = domain.collections.get(record_id.collection)
        if collection is None:
            old = domain.singletons[record_id.collection]
            new = replace(old, size=old.size + size, set_aside=old.set_aside + set_aside)
            self.set_domain(domain.with_singleton(new))
            return
        shards = list(collection.shards)
        index = next(i for i in reversed(range(len(shards))) if shards[i].path == path)
        shard = shards[index]
        shards[index] = Shard(
            path, shard.count + count, shard.size + size, shard.set_aside + set_aside
        )
        self.set_domain(domain.with_collection(replace(collection, shards=tuple(shards))))

    def _state_paths(self) -> set[str]:
        return {path for domain in self.outline.domains.values() for path in domain.state_paths()}

    def _suspects(self) -> list[str]:
        """Return the paths of files that may have changed."""
        suspects = {*self._touched, *self._written, "manifest.py"}
        for domain in self.outline.domains.values():
            if domain.schema_differs(self._opened.domains.get(domain.name)):
                suspects.add(domain.schema_path)
        return [
            path
            for path in self.outline.paths()
            if path in suspects or path not in self._paths_opened
        ]

    def _check_renamed(self) -> None:
        renamed = {
            (field, class_name)
            for domain, class_name, field in self._renamed
            if self.outline.domains[domain].classes[class_name].field(field) is None
        }
        if not renamed:
            return
        constraints = [constraint_path(name) for name in self.outline.constraints]
        for path in [*constraints, *self.outline.tests]:
            if path in self._written:
                continue
            source = self.source(path)
            self.files_parsed += 1
            for field, class_name in sorted(renamed):
                line = next(uses_of_name(source, field), None)
                if line:
                    raise EditError(
                        "field_in_use",
                        f"{path}:{line} uses `.{field}`, which {class_name} no longer has: rewrite"
                        " it in the same change with write_constraint",
                    )


def render(project: Project) -> dict[str, str]:
    """Return the text of each file in a project's tree, keyed by path."""
    return {path: project.source(path) for path in project.outline.paths()}


def same_record(old: Record, new: Record | None) -> bool:
    """Return whether two records have the same source; in Python, 1 equals 1.0 and True."""
    return new is not None and record_literal(old, Uses()) == record_literal(new, Uses())


def _copy(contents: FileRecords) -> dict[str, dict[str, Record]]:
    return {name: dict(by_key) for name, by_key in contents.items()}


def _lists(contents: FileRecords) -> dict[str, list[Record]]:
    return {name: list(by_key.values()) for name, by_key in contents.items()}
