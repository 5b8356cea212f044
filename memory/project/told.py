"""The project of somebody who was told less, or in another order: computed from typed entries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from memory.project.apply import apply
from memory.project.edits import Add, Edit, Retire, Update, WidenField
from memory.project.errors import EditError
from memory.project.model import Project
from memory.project.records import RecordEntry, compile_record
from memory.project.values import Location, RecordId


def edits_up_to(edits: Iterable[Edit], seq: int) -> Iterator[Edit]:
    """Yield those of a batch's edits that its typed entries up to `seq` were compiled into.

    The batch was compiled entry by entry. The edit of a record cites its entry; the edits of the
    schema that it needs come before it and cite none.
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


class Telling:
    """A project that is told typed entries, some at a time, with its files after each time."""

    def __init__(
        self, files: Mapping[str, str] | None = None, widened: Sequence[WidenField] = ()
    ) -> None:
        """Start with these files, which hold no records: constraints and their tests.

        Fields in `widened`, widened by hand in this order, are widened as soon as they exist.
        """
        project = Project.from_files(files or {})
        self.outline = project.outline
        self.files: dict[str, str] = dict(files or {})
        self.made_of: dict[RecordId, list[int]] = {}
        self._places: dict[RecordId, Location] = {}
        self._widened = widened

    def tell(self, entries: Sequence[RecordEntry]) -> dict[int, str]:
        """Tell the entries in this order; return seq → reason of those that are rejected.

        They are compiled as the server compiles them. Only the compiler judges them, not the gate,
        which also runs tests.
        """
        rejected: dict[int, str] = {}
        while True:
            project = Project(self.outline, self.files.__getitem__, self._locate, self.files)
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
                    # Some of its edits are in the project already: start again without the entry.
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
            # Its class or field may come later, or have become wider otherwise.
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
        for record in change.added:
            self._places[record] = Location(change.records[record].path)
        for record in change.retired:
            self._places[record] = Location(self._places[record].path, retired=True)
        for record in change.transient:
            self._places[record] = Location("", retired=True)

    def _locate(self, domain: str, collection: str, key: str) -> Location | None:
        return self._places.get(RecordId(domain, collection, key))


def _record_of(edits: Sequence[Edit]) -> RecordId:
    """Return the record that a typed entry is about: that of its last edit."""
    edit = edits[-1]
    assert isinstance(edit, Add | Update | Retire)
    assert edit.collection is not None
    assert edit.key is not None
    return RecordId(edit.domain, edit.collection, edit.key)
