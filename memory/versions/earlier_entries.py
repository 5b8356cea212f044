"""Earlier entries: what the log says about records to which late entries are added.

`memory.project.folding` decides what a late entry contributes. To find out whether entries are late
at all takes a single query for a batch, and none if the batch contains only new records.
"""

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.db.models.fields.json import KT

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.project import (
    Domain,
    Outline,
    Project,
    ProjectError,
    Record,
    RecordEntry,
    RecordId,
    Retire,
)
from memory.project.apply import collection_for
from memory.project.edits import fields_set
from memory.project.folding import Contribution, Moment, Stated, is_about, last_stated
from memory.project.names import key_of_entry
from memory.project.outline import Class
from memory.project.records import record_id_of
from memory.versions.models.checkpoints import Checkpoint, Origin

# The versions whose edits set values that no typed entry has.
_WRITTEN = (Origin.LLM, Origin.PROPOSED, Origin.IMPORTED)
_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)


class LoggedEntries:
    """The entries in a user's log, as far as a batch of typed entries needs them."""

    def __init__(self, user: MemoryUser, batch: Collection[RecordEntry]) -> None:
        self._user = user
        self._batch = batch
        self._typed = {entry.seq: entry for entry in batch}
        self._occurred = {entry.seq: entry.moment[0] for entry in batch}
        # Only entries that occurred since then can be newer than one in the batch.
        self._since = min(self._occurred.values(), default=_NEVER)
        # Entries in the log that occurred before `_since`.
        self._old: set[int] = set()
        # Entries in the log that are not typed, or no longer have any data.
        self._others: set[int] = set()

    def look_up(self, project: Project) -> None:
        """Find out, with one query, which entries behind the batch's records may be newer.

        If some are, another query reads the entries behind those records.
        """
        behind: list[tuple[RecordEntry, Sequence[int]]] = []
        for entry in self._batch:
            try:
                record_id = record_id_of(project, entry) if entry.key is not None else None
                record = project.record(record_id) if record_id else None
            except ProjectError:  # compiling the entry will fail likewise, and say why
                continue
            location = project.find(record_id) if record_id else None
            if record_id is None or location is None:
                continue
            if record is not None:
                behind.append((entry, record.sources))
            if location.ended_by is not None:
                behind.append((entry, [location.ended_by]))
        self._look_up({seq for _, seqs in behind for seq in seqs})
        late = [seqs for entry, seqs in behind if self.newer(seqs, entry.moment)]
        self._read({seq for seqs in late for seq in seqs})

    def _look_up(self, seqs: set[int]) -> None:
        unknown = seqs - self._occurred.keys() - self._old
        if unknown:
            rows = LogEntry.objects.filter(
                user=self._user, seq__in=unknown, occurred_at__gte=self._since
            )
            self._occurred |= dict(rows.values_list("seq", "occurred_at"))
            self._old |= unknown - self._occurred.keys()

    def newer(self, seqs: Collection[int], moment: Moment) -> list[int]:
        """Return those of these entries that come after this moment, in ascending order."""
        if self._old.issuperset(seqs):
            return []
        self._look_up({*seqs})
        moments = ((self._occurred[seq], seq) for seq in seqs if seq in self._occurred)
        return sorted(seq for occurred_at, seq in moments if (occurred_at, seq) > moment)

    def stated(self, record_id: RecordId, record: Record, class_: Class) -> Stated:
        """Return when each field of a record was last set, by a typed entry or by an edit."""
        self._read({*record.sources})
        moments = {seq: (self._occurred[seq], seq) for seq in record.sources}
        others, contributions = dict(moments), []
        for seq in record.sources:
            entry = self._typed.get(seq)
            if entry is not None and is_about(entry, record_id, record):
                contributions.append(Contribution(others.pop(seq), entry.field_names(class_)))
        for fields, sources in self._edits.get((record_id.domain, record_id.key), ()):
            if sources <= moments.keys():
                contributions.append(Contribution(max(moments[seq] for seq in sources), fields))
        return last_stated(contributions, max((others or moments).values()))

    def _read(self, seqs: set[int]) -> None:
        missing = seqs - self._typed.keys() - self._others
        if not missing:
            return
        rows = LogEntry.objects.filter(user=self._user, seq__in=missing)
        for entry in rows.only("user", "seq", "kind", "occurred_at", "data"):
            self._occurred[entry.seq] = entry.occurred_at
            if entry.kind == EntryKind.RECORD and entry.data is not None:
                self._typed[entry.seq] = entry_log.record_entry(entry)
            else:
                self._others.add(entry.seq)

    @cached_property
    def _edits(self) -> Mapping[tuple[str, str], Sequence[tuple[Collection[str], set[int]]]]:
        """The fields that edits by models and people set, with the entries that they cite.

        Keyed by domain and key. An edit of a record in another collection cites other entries.
        """
        by_record: dict[tuple[str, str], list[tuple[Collection[str], set[int]]]] = {}
        versions = Checkpoint.objects.filter(user=self._user, origin__in=_WRITTEN)
        for edits in versions.values_list("edits", flat=True).iterator(chunk_size=50):
            for domain, key, fields, sources in _values_set(edits):
                by_record.setdefault((domain, key), []).append((fields, sources))
        return by_record


def _values_set(
    edits: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[str, str, Collection[str], set[int]]]:
    for edit in edits:
        if edit["op"] in ("add", "update") and not edit.get("redacted"):
            sources = set(edit["sources"])
            key = edit.get("key") or key_of_entry(edit["class_name"], max(sources))
            yield edit["domain"], key, fields_set(edit).keys(), sources


# -- All typed entries about records, for the rare cases in which their past is worked out anew --


def entries_about(
    user: MemoryUser, records: Collection[RecordId], *, within: Q | None = None
) -> dict[RecordId, list[RecordEntry]]:
    """Return all covered or pending typed entries about each of these records, in log order.

    This reads all of the user's entries with these keys. If `within` is given, only covered entries
    whose outcomes it selects are returned.
    """
    outline = Outline.from_json(user.head.outline) if user.head else Outline()
    outcomes = EntryOutcome.objects.filter(user=user, seq=OuterRef("seq"))
    if within is None:
        counts = Q(~Exists(outcomes.exclude(outcome=Outcome.COVERED)))
    else:
        counts = Q(Exists(outcomes.filter(within, outcome=Outcome.COVERED)))
    keyed = LogEntry.objects.alias(key=KT("data__key")).filter(
        Q(key__in={record.key for record in records}) | Q(key=None),
        counts,
        user=user,
        kind=EntryKind.RECORD,
        redacted_at=None,
    )
    wanted = set(records)
    by_record: dict[RecordId, list[RecordEntry]] = {}
    for row in keyed.order_by("seq").iterator(chunk_size=1000):
        entry = entry_log.record_entry(row)
        domain = outline.domains.get(entry.domain) or Domain(entry.domain)
        collection = entry.collection or collection_for(domain, entry.type)
        for record_id in wanted:
            if (entry.domain, collection) == record_id[:2] and entry.may_have_key(record_id.key):
                by_record.setdefault(record_id, []).append(entry)
    return by_record


def last_retirements(
    user: MemoryUser, records: Collection[RecordId], versions: Q, outcomes: Q
) -> dict[RecordId, int]:
    """Return the entry that retired each record last, by the time it occurred.

    Only these versions and the entries with these outcomes count. Records that nothing retired are
    left out.
    """
    moments: dict[RecordId, list[Moment]] = {
        record_id: [entry.moment for entry in entries if entry.retired]
        for record_id, entries in entries_about(user, records, within=outcomes).items()
    }
    written = Checkpoint.objects.filter(versions, user=user, origin__in=_WRITTEN)
    cited: dict[RecordId, set[int]] = {}
    for edits in written.values_list("edits", flat=True).iterator(chunk_size=50):
        for edit in edits:
            if edit["op"] == Retire.op and not edit.get("redacted"):
                record_id = RecordId(edit["domain"], edit["collection"], edit["key"])
                if record_id in records:
                    cited.setdefault(record_id, set()).update(edit["sources"])
    seqs = {seq for some in cited.values() for seq in some}
    occurred = dict(
        LogEntry.objects.filter(user=user, seq__in=seqs).values_list("seq", "occurred_at")
    )
    for record_id, some in cited.items():
        moments.setdefault(record_id, []).extend((occurred[seq], seq) for seq in some)
    return {record_id: max(moments)[1] for record_id, moments in moments.items() if moments}
