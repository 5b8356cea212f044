"""Whether entries still hold, judging by a version of the project and by corrections.

A record is the fold of its typed entries, field by field, by the time at which they occurred. An
entry of which at least one value still stands is current. If none does, it was replaced; if its
record was retired, it was retired, too. The entry that retires a record is itself current until
something newer is known about the record. A fact or correction was replaced if it was corrected.
What would be current has lapsed if the last day on which it holds is over.

Only what belongs to the given entries is read: the lines of their records in the project's files
and, for a record with several sources, these sources.
"""

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from memory.kernel.canonical import canonical_json
from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.models.entries import STATEMENTS, EntryKind, EntryOutcome, LogEntry, Outcome
from memory.project import Outline, RecordId
from memory.project.edits import Retire
from memory.project.names import DEFAULT_DOMAIN
from memory.project.parse import find_record, last_day_in, sources_in
from memory.recall.search.documents import day_of, key_of
from memory.versions import checkpoints, provenance
from memory.versions.checkpoints import AnyState, State
from memory.versions.computed_states import NotComputable
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.past_states import KnownState

# The maximum number of a record's sources to compare: the newest ones.
MAX_SOURCES = 1000


# The places of records, each file of the newest version that they are in once, and its hash.
_LOCATIONS = """
WITH place AS (
    SELECT domain, collection, key, path, retired_version,
           row_number() OVER (PARTITION BY path) AS number
    FROM memory_recordlocation WHERE user_id = %(user)s AND key = ANY(%(keys)s)
)
SELECT place.domain, place.collection, place.key, place.path, place.retired_version,
       blob.hash, blob.content
FROM place
LEFT JOIN memory_checkpoint AS newest ON newest.id = %(head)s AND place.number = 1
LEFT JOIN memory_blob AS blob
    ON blob.user_id = newest.user_id AND blob.hash = newest.tree ->> place.path
"""


class Status(StrEnum):
    """Whether an entry still holds."""

    CURRENT = "current"
    REPLACED = "replaced"
    RETIRED = "retired"
    LAPSED = "lapsed"


@dataclass(frozen=True)
class EntryStatus:
    """An entry's status, and the number of the entry that replaced or retired it, if known.

    `about` is the record that the entry is about, or the number of the entry that it corrects or,
    if it isn't a correction, its own.
    """

    status: Status
    about: RecordId | int
    by: int | None = None

    @property
    def holds(self) -> bool:
        """Whether anything that the entry says is still the case."""
        return self.status == Status.CURRENT

    @property
    def replaced_by(self) -> int | None:
        """The entry that replaced this one."""
        return self.by if self.status == Status.REPLACED else None

    @property
    def retired_by(self) -> int | None:
        """The entry that retired this one's record."""
        return self.by if self.status == Status.RETIRED else None


@dataclass(frozen=True)
class _Location:
    """A record, the file that contains or contained it, and the version that retired it, if any.

    A singleton's key is empty, because its entries need not name it.
    """

    record: RecordId
    path: str
    retired_version: int | None = None


@dataclass(frozen=True)
class _Setter:
    """The entry that last set a field, its rank among the record's sources, and the value.

    The value is None if it was set by an edit that was not compiled from a typed entry.
    """

    rank: int
    seq: int
    value: str | None = None


class Statuses:
    """The statuses of a user's entries, as of now or as of an earlier state.

    Messages have no status, and neither have typed entries that are pending, rejected or dismissed,
    or whose state can't be read: it may be that of entries that were processed together.
    """

    def __init__(self, user: MemoryUser, then: KnownState | None = None) -> None:
        self._user, self._then = user, then
        self._up_to = then.seq if then else None
        moment = then.moment if then else None
        self._today = day_of(moment or timezone.now(), ZoneInfo(user.time_zone))

    def compute(self, entries: Iterable[LogEntry]) -> dict[int, EntryStatus]:
        """Return the statuses of these entries by their numbers, leaving out those without one.

        None of them may be redacted.
        """
        entries = list(entries)
        statements = [entry for entry in entries if entry.kind in STATEMENTS]
        records = [entry for entry in entries if entry.kind == EntryKind.RECORD]
        return {**self._of_statements(statements), **self._of_records(records)}

    def _of_statements(self, entries: Sequence[LogEntry]) -> dict[int, EntryStatus]:
        origins = {entry.seq: entry_log.stated_in(entry) for entry in entries}
        last_days = {entry.seq: entry_log.valid_until(entry) for entry in entries}
        newest = (
            entry_log.corrections(self._user, {*origins.values()}, self._up_to, narrow=True)
            if origins
            else {}
        )
        statuses = {}
        for seq, about in origins.items():
            by = newest[about].seq if about in newest else seq
            status = Status.REPLACED if by != seq else self._unless_lapsed(last_days[seq])
            statuses[seq] = EntryStatus(status, about, by if by != seq else None)
        return statuses

    def _unless_lapsed(self, last_day: datetime.date | None) -> Status:
        """Return the status of what would be current, given the last day on which it holds."""
        is_over = last_day is not None and last_day < self._today
        return Status.LAPSED if is_over else Status.CURRENT

    # -- Records ----------------------------------------------------------------------------------

    @cached_property
    def _state(self) -> AnyState:
        """The newest version, or the earlier state; may raise NotComputable."""
        if self._then is not None:
            return self._then.checkpoint or State(user=self._user)
        newest = Checkpoint.objects.only("user_id", "version", "tree", "outline")
        return newest.get(pk=self._user.head_id or 0)

    @cached_property
    def _outline(self) -> Outline:
        return Outline.from_json(self._state.outline)

    def _of_records(self, entries: Sequence[LogEntry]) -> dict[int, EntryStatus]:
        if not entries or self._user.head_id is None:
            return {}
        try:
            locations, lines = self._read_lines(entries)
        except (NotComputable, checkpoints.Redacted):  # or a redaction is in progress
            return {}
        sources = {
            location: tuple(seq for seq in sources_in(line) if seq <= (self._up_to or seq))
            for location, line in lines.items()
        }
        cited = [
            entry
            for entry in entries
            if (location := locations.get(entry.seq)) and entry.seq in sources.get(location, ())
        ]
        statuses = self._of_cited(cited, locations, sources, lines)
        covered = self._covered(locations.keys() - statuses.keys())
        retirements = self._read_retirements({locations[seq] for seq in covered} - sources.keys())
        for entry in entries:
            if entry.seq in covered:
                location = locations[entry.seq]
                statuses[entry.seq] = _of_uncited(
                    entry, location, sources.get(location), retirements
                )
        return statuses

    def _read_lines(
        self, entries: Sequence[LogEntry]
    ) -> tuple[dict[int, _Location], dict[_Location, str]]:
        """Return the places of these entries' records, and the lines of those in the state.

        The places are keyed by the entries' numbers. An entry that never made or changed a record
        may have none.
        """
        by_key, files = self._read_locations({key_of(entry) for entry in entries})
        chosen = {entry.seq: self._choose_location(entry, by_key) for entry in entries}
        locations = {seq: location for seq, location in chosen.items() if location is not None}
        paths = {location: self._paths(location) for location in {*locations.values()}}
        if missing := {*sum(paths.values(), ())} - files.keys():
            files |= checkpoints.read_files(self._state, missing)
        lines = {}
        for location, candidates in paths.items():
            record = location.record
            for path in candidates:
                line = find_record(files.get(path, ""), record.collection, record.key or None)
                if line is not None:
                    lines[location] = line
        return locations, lines

    def _read_locations(
        self, keys: Collection[str]
    ) -> tuple[dict[tuple[str, str], list[_Location]], dict[str, str]]:
        """Return the places of records by domain and key, and the newest version's files there."""
        by_key = defaultdict[tuple[str, str], list[_Location]](list)
        files: dict[str, str] = {}
        head = self._user.head_id if self._then is None else None
        with connection.cursor() as cursor:
            cursor.execute(_LOCATIONS, {"user": self._user.pk, "keys": list(keys), "head": head})
            for domain, collection, key, path, retired, hash_, content in cursor.fetchall():
                record = RecordId(domain, collection, key)
                by_key[domain, key].append(_Location(record, path, retired))
                if hash_ is not None and content is None:
                    raise checkpoints.Redacted(path)
                if path and head is not None:
                    files[path] = content or files.get(path, "")
        return by_key, files

    def _choose_location(
        self, entry: LogEntry, by_key: Mapping[tuple[str, str], Sequence[_Location]]
    ) -> _Location | None:
        data = entry.data or {}
        name, class_name = data.get("domain", DEFAULT_DOMAIN), data.get("type")
        locations = [
            location
            for location in by_key.get((name, key_of(entry)), ())
            if data.get("collection") in (None, location.record.collection)
        ]
        if len(locations) == 1:
            return locations[0]
        domain = self._outline.domains.get(name)
        for location in locations:
            holder = domain.holders.get(location.record.collection) if domain else None
            if holder is None or holder.class_name == class_name:
                return location
        if domain and data.get("key") is None:
            for singleton in domain.singletons.values():
                if singleton.class_name == class_name:
                    return _Location(RecordId(name, singleton.name, ""), domain.state_path)
        return None

    def _paths(self, location: _Location) -> tuple[str, ...]:
        """Return the files that may contain a record; one that no version contains has no path."""
        if location.path:
            return (location.path,)
        domain = self._outline.domains.get(location.record.domain)
        collection = domain.collections.get(location.record.collection) if domain else None
        return tuple(shard.path for shard in collection.shards) if collection else ()

    def _of_cited(
        self,
        entries: Sequence[LogEntry],
        locations: Mapping[int, _Location],
        sources: Mapping[_Location, Sequence[int]],
        lines: Mapping[_Location, str],
    ) -> dict[int, EntryStatus]:
        """Return the statuses of entries that are among their records' sources."""
        several = {
            location: sources[location]
            for one in entries
            if len(sources[location := locations[one.seq]]) > 1
        }
        setters = self._read_setters(several)
        statuses = {}
        for entry in entries:
            location = locations[entry.seq]
            by = _replaced_by(entry, setters.get(location, {}))
            last_day = last_day_in(lines[location]) if by is None else None
            status = Status.REPLACED if by is not None else self._unless_lapsed(last_day)
            statuses[entry.seq] = EntryStatus(status, location.record, by)
        return statuses

    def _read_setters(
        self, sources: Mapping[_Location, Sequence[int]]
    ) -> dict[_Location, dict[str, _Setter]]:
        """Return the entry that last set each field of these records."""
        seqs = {seq for of_record in sources.values() for seq in of_record[-MAX_SOURCES:]}
        if not seqs:
            return {}
        read = LogEntry.objects.filter(user=self._user, seq__in=seqs, redacted_at=None).order_by(
            "occurred_at", "seq"
        )
        entries = list(read.only("user_id", "seq", "kind", "occurred_at", "data"))
        all_setters = {}
        for location, of_record in sources.items():
            wanted = {*of_record}
            own = [one for one in entries if one.seq in wanted and _is_about(one, location.record)]
            setters = {
                name: _Setter(rank, entry.seq, canonical_json(value))
                for rank, entry in enumerate(own)
                for name, value in _fields_of(entry).items()
            }
            if own and len(own) < len(wanted):
                setters |= self._edited(location, (own[0].data or {})["type"], own, of_record)
            all_setters[location] = setters
        return all_setters

    def _edited(
        self, location: _Location, class_name: str, own: Sequence[LogEntry], sources: Sequence[int]
    ) -> dict[str, _Setter]:
        """Return the fields that an edit by a model or a person was the last to set."""
        compiled = {entry.seq for entry in own}
        edits = provenance.last_edits(self._user, location.record, class_name, sources)
        return {
            name: _Setter(len(own), max(seqs))
            for name, seqs in edits.items()
            if not compiled & {*seqs}
        }

    def _covered(self, seqs: Collection[int]) -> set[int]:
        """Return those of these entries that the state takes into account."""
        if not seqs:
            return set()
        outcomes = EntryOutcome.objects.filter(
            user=self._user, seq__in=seqs, outcome=Outcome.COVERED
        )
        if self._then is not None:
            by_then = Q(checkpoint=None) | Q(checkpoint__version__lte=self._state.version)
            outcomes = outcomes.filter(by_then)
        return set(outcomes.values_list("seq", flat=True))

    def _read_retirements(self, locations: Collection[_Location]) -> dict[_Location, int]:
        """Return the entries by which these records were retired."""
        by_record = {location.record: location for location in locations}
        versions = {
            location.retired_version
            for location in locations
            if location.retired_version is not None
        }
        if not versions:
            return {}
        made = Checkpoint.objects.filter(user=self._user, version__in=versions)
        retirements = {}
        for edit in (one for edits in made.values_list("edits", flat=True) for one in edits):
            if edit["op"] == Retire.op and not edit.get("redacted"):
                record = RecordId(edit["domain"], edit["collection"], edit["key"])
                if record in by_record:
                    retirements[by_record[record]] = max(edit["sources"])
        return retirements


def _is_about(entry: LogEntry, record: RecordId) -> bool:
    """Return whether a source of a record is a typed entry about this very record."""
    data = entry.data or {}
    return (
        entry.kind == EntryKind.RECORD
        and data.get("domain", DEFAULT_DOMAIN) == record.domain
        and record.key in ("", key_of(entry))
    )


def _fields_of(entry: LogEntry) -> Mapping[str, object]:
    fields: Mapping[str, object] = (entry.data or {}).get("data") or {}
    return fields


def _replaced_by(entry: LogEntry, setters: Mapping[str, _Setter]) -> int | None:
    """Return the entry that set the last of an entry's values anew, or None if a value stands."""
    last: list[_Setter] = []
    for name, value in _fields_of(entry).items():
        setter = setters.get(name)
        if setter is None or entry.seq == setter.seq or canonical_json(value) == setter.value:
            return None
        last.append(setter)
    return max(last, key=lambda one: (one.rank, one.seq)).seq if last else None


def _of_uncited(
    entry: LogEntry,
    location: _Location,
    sources: Sequence[int] | None,
    retirements: Mapping[_Location, int],
) -> EntryStatus:
    """Return the status of an entry that is not among its record's sources.

    `sources` is None if the record doesn't exist in the state. If it does, the entry retired it or
    belongs to what was retired, and the record came back.
    """
    if sources is not None:
        return EntryStatus(Status.REPLACED, location.record, max(sources, default=None))
    by = retirements.get(location)
    if not (entry.data or {}).get("retired"):
        return EntryStatus(Status.RETIRED, location.record, by)
    if by in (None, entry.seq):
        return EntryStatus(Status.CURRENT, location.record)
    return EntryStatus(Status.REPLACED, location.record, by)
