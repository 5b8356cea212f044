"""Folding: what a typed entry contributes to its record, in the order in which entries occurred.

A record is the fold of its own typed entries, field by field, by the time at which they occurred
and then by their number, whatever order they arrived in. A retirement ends what was said before it:
an entry that occurred after it begins a new life of the record under the same key.

Nearly every entry is newer than all that its record is based on, and is simply compiled. Only for a
late entry are the record's earlier entries read: a field keeps its value if a newer entry, or an
edit by a model or a person, has set it. Such an edit counts at the time of the newest entry that it
cites. A value of unknown origin (imported, or in a renamed field) counts as new as the record's
newest entry that is not a typed entry about the record or, without such an entry, as its newest
entry.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from memory.project.edits import Retire, RetireEarlier
from memory.project.outline import SET_ASIDE, Class
from memory.project.set_aside import field_of, set_aside_of
from memory.project.values import Record, RecordId

if TYPE_CHECKING:
    from memory.project.model import Project
    from memory.project.records import RecordEntry

# When an entry occurred, and its number. Entries that occurred at the same time are in log order.
Moment: TypeAlias = tuple[datetime.datetime, int]

SUPERSEDED = "superseded"
PARTLY_SUPERSEDED = "partly_superseded"
NOTHING_TO_RETIRE = "nothing_to_retire"


@dataclass(frozen=True)
class Remark:
    """Why an entry changes less than it says: a code, a sentence, and the newer entries, if any."""

    code: str
    message: str
    newer: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contribution:
    """Fields that an entry or edit set, and when."""

    moment: Moment
    fields: Collection[str]


@dataclass(frozen=True)
class Stated:
    """When each field of a record was last set; `otherwise` is for values of unknown origin."""

    fields: Mapping[str, Moment]
    otherwise: Moment

    def set_at(self, name: str, record: Record) -> Moment | None:
        """Return when the field was last set, or None if it has never been set."""
        return self.fields.get(name, self.otherwise if name in _fields_of(record) else None)


class EarlierEntries(Protocol):
    """The entries that a user's records are based on; see `KnownEntries`."""

    def newer(self, seqs: Collection[int], moment: Moment) -> list[int]:
        """Return those of these entries that come after this moment, in ascending order."""

    def stated(self, record_id: RecordId, record: Record, class_: Class) -> Stated:
        """Return when each field of a record of this class was last set."""


class KnownEntries:
    """Entries in memory, by number: the only earlier entries there are."""

    def __init__(self, entries: Iterable["RecordEntry"]) -> None:
        self._entries = {entry.seq: entry for entry in entries}

    def newer(self, seqs: Collection[int], moment: Moment) -> list[int]:
        """Return those of these entries that come after this moment, in ascending order."""
        entries = (self._entries[seq] for seq in seqs if seq in self._entries)
        return sorted(entry.seq for entry in entries if entry.moment > moment)

    def stated(self, record_id: RecordId, record: Record, class_: Class) -> Stated:
        """Return when each field of a record of this class was last set."""
        own = [self._entries[seq] for seq in record.sources]
        contributions = [Contribution(entry.moment, entry.field_names(class_)) for entry in own]
        return last_stated(contributions, max(one.moment for one in contributions))


def last_stated(contributions: Iterable[Contribution], otherwise: Moment) -> Stated:
    """Return when each field was last set by one of these contributions, in any order."""
    newest: dict[str, Moment] = {}
    for one in contributions:
        for name in one.fields:
            newest[name] = max(newest.get(name, one.moment), one.moment)
    return Stated(newest, otherwise)


def is_about(entry: "RecordEntry", record_id: RecordId, record: Record) -> bool:
    """Return whether a typed entry that a record cites is about this very record."""
    return (
        (entry.domain, entry.type) == (record_id.domain, record.class_name)
        and not entry.retired
        and entry.may_have_key(record_id.key)
    )


def fields_to_set(
    project: "Project", record_id: RecordId, entry: "RecordEntry", names: Collection[str]
) -> Collection[str] | None:
    """Return which of an entry's fields become those of its record: those not set by newer entries.

    Returns None if the record was retired after the entry occurred, so that the entry belongs to an
    earlier life of the record. The reason for leaving out any field is noted in the project.
    """
    newer = _newer(project, record_id, entry)
    if not newer:
        return names
    location, record = project.find(record_id), project.record(record_id)
    if location and location.ended_by in newer:
        _note(project, entry, SUPERSEDED, [location.ended_by], f"retired {'.'.join(record_id)}")
        return None
    assert record is not None, "the newer entries are behind it"
    stated = _stated(project, record_id, record)
    left = {
        name: moment
        for name in names
        if (moment := stated.set_at(name, record)) and moment > entry.moment
    }
    if left:
        by = sorted({seq for _, seq in left.values()})
        code = SUPERSEDED if len(left) == len(names) else PARTLY_SUPERSEDED
        _note(project, entry, code, by, f"set {', '.join(left)}")
    return [name for name in names if name not in left]


def retirement(
    project: "Project", record_id: RecordId, entry: "RecordEntry"
) -> Retire | RetireEarlier | None:
    """Return the edit by which an entry retires its record, or None if it was retired again since.

    The record lives on if newer entries say more about it.
    """
    record, newer = project.record(record_id), _newer(project, record_id, entry)
    location, sources = project.find(record_id), (entry.seq,)
    if location and location.ended_by in newer:
        _note(project, entry, SUPERSEDED, [location.ended_by], f"retired {'.'.join(record_id)}")
        return None
    if record is None:
        what = "is already retired" if location else "is not known"
        ends = "later entries about it that occurred before this one will not bring it back"
        message = f"{'.'.join(record_id)} {what}: {ends}"
        project.note_remark(entry.seq, Remark(NOTHING_TO_RETIRE, message))
        return RetireEarlier(*record_id, sources)
    if not newer:
        return Retire(*record_id, sources)
    stated = _stated(project, record_id, record)
    clears = tuple(
        name
        for name in _fields_of(record)
        if (moment := stated.set_at(name, record)) and moment < entry.moment
    )
    if len(newer) == len(record.sources):
        _note(project, entry, SUPERSEDED, newer, f"are all that {'.'.join(record_id)} is based on")
    return RetireEarlier(*record_id, sources, tuple(newer), clears)


def _fields_of(record: Record) -> Collection[str]:
    """Return the fields that a record has values for, in the field or set aside."""
    set_aside = map(field_of, set_aside_of(record.fields))
    return [name for name in dict.fromkeys([*record.fields, *set_aside]) if name != SET_ASIDE]


def _stated(project: "Project", record_id: RecordId, record: Record) -> Stated:
    assert project.earlier is not None
    class_ = project.outline.domains[record_id.domain].classes[record.class_name]
    return project.earlier.stated(record_id, record, class_)


def _newer(project: "Project", record_id: RecordId, entry: "RecordEntry") -> list[int]:
    """Return the entries behind a record, or behind its last retirement, that are newer."""
    if project.earlier is None or entry.occurred_at is None:
        return []
    location = project.find(record_id)
    if location is None:
        return []
    record = project.record(record_id)
    behind = list(record.sources) if record else []
    if location.ended_by is not None:
        behind.append(location.ended_by)
    return project.earlier.newer(behind, entry.moment)


def _note(
    project: "Project", entry: "RecordEntry", code: str, newer: Sequence[int], what: str
) -> None:
    named = ("entry " if len(newer) == 1 else "entries ") + ", ".join(map(str, newer))
    message = f"{named}, which occurred later, {what}"
    project.note_remark(entry.seq, Remark(code, message, tuple(newer)))
