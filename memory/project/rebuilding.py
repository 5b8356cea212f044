"""A project as if it had fewer typed entries, or the same entries in a different order."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from memory.project.apply import apply
from memory.project.edits import Add, Edit, Retire, RetireEarlier, Update, WidenField
from memory.project.errors import EditError
from memory.project.model import Project
from memory.project.records import RecordEntry, compile_record
from memory.project.values import Location, RecordId


def select_edits_up_to(edits: Iterable[Edit], seq: int) -> Iterator[Edit]:
    """Yield the edits in a batch that come from typed entries up to `seq`.

    The batch was compiled entry by entry. An edit to a record cites the entry it comes from; the
    schema edits it needs come before it and cite no entry.
    """
    schema: list[Edit] = []
    for edit in edits:
        if not edit.sources:
            schema.append(edit)
            continue
        if max(edit.sources) > seq:
            return
        yield from schema
        yield edit
        schema = []


class ProjectBuild:
    """A project built up from typed entries, a few at a time; `files` holds the result so far."""

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        widened: Sequence[WidenField] = (),
        time_zone: datetime.tzinfo = datetime.UTC,
    ) -> None:
        """Start with these files: constraints and their tests, but no records.

        `widened` lists, in order, the edits that somebody made by hand to widen fields. Each of
        these fields is widened as soon as it exists.
        """
        project = Project.from_files(files or {})
        self.outline = project.outline
        self.files: dict[str, str] = dict(files or {})
        self.made_of: dict[RecordId, list[int]] = {}
        self._places: dict[RecordId, Location] = {}
        self._widened = widened
        self._time_zone = time_zone

    def add_entries(self, entries: Sequence[RecordEntry]) -> dict[int, str]:
        """Add the entries in this order; return the reason for each rejection, keyed by seq.

        The entries are compiled just as they are on the server, but only the compiler can reject
        them: the gate, which also runs tests, is left out.
        """
        rejected: dict[int, str] = {}
        while True:
            project = Project(
                self.outline, self.files.__getitem__, self._locate, self.files, self._time_zone
            )
            made_of: list[tuple[RecordId, int]] = []
            for entry in entries:
                if entry.seq in rejected:
                    continue
                try:
                    edits = compile_record(project, entry)
                except EditError as error:
                    rejected[entry.seq] = str(error)
                    continue
                try:
                    for edit in edits:
                        apply(project, edit)
                except EditError as error:
                    # Some of the entry's edits have already been applied: start over without it.
                    rejected[entry.seq] = str(error)
                    break
                made_of.append((_record_of(edits), entry.seq))
                if len(edits) > 1:  # the schema has changed
                    self._widen(project, entry.domain)
            else:
                self._take(project)
                for record, seq in made_of:
                    self.made_of.setdefault(record, []).append(seq)
                return rejected

    def _widen(self, project: Project, domain: str) -> None:
        for edit in self._widened:
            # The class or field may not exist yet, or may already have been widened for another
            # reason.
            with suppress(EditError):
                if edit.domain == domain:
                    apply(project, edit)

    def _take(self, project: Project) -> None:
        change = project.change()
        for path, text in change.files.items():
            if text is None:
                self.files.pop(path, None)
            else:
                self.files[path] = text
        self.outline = change.outline
        for record, placed in change.records.items():
            self._places[record] = Location(placed.path)
        for record in change.retired:
            self._places[record] = Location(self._places[record].path, retired=True)
        for record in change.transient:
            self._places[record] = Location("", retired=True)

    def _locate(self, domain: str, collection: str, key: str) -> Location | None:
        return self._places.get(RecordId(domain, collection, key))


def _record_of(edits: Sequence[Edit]) -> RecordId:
    """Return the record that a typed entry is about: the record of its last edit."""
    edit = edits[-1]
    assert isinstance(edit, Add | Update | Retire | RetireEarlier)
    assert edit.collection is not None
    assert edit.key is not None
    return RecordId(edit.domain, edit.collection, edit.key)
