"""Provenance: which log entries each field of a record was last set from."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome
from memory.project.edits import fields_set
from memory.project.names import key_of_entry
from memory.project.values import RecordId
from memory.versions import differences
from memory.versions.checkpoints import AnyState
from memory.versions.models.checkpoints import Checkpoint, RecordLocation

# How many versions to search for changes to a record. A field that was last set in an older version
# is attributed to all of the record's entries.
MAX_VERSIONS = 50


@dataclass(frozen=True)
class FieldOrigin:
    """A record's field: its value as typed JSON, and the entries it comes from, oldest first."""

    name: str
    value: Any
    entries: Sequence[int]


@dataclass(frozen=True)
class RecordOrigin:
    """A record as it is now or, if it was retired, as it was in the last version that contained it.

    `class_name` is the record's class, `entries` lists all entries it comes from, and `fields` are
    in the order in which the class declares them.
    """

    class_name: str
    fields: Sequence[FieldOrigin]
    entries: Sequence[int]


def read_records(checkpoint: AnyState, records: Collection[RecordId]) -> dict[RecordId, Any]:
    """Return those of the given records that a version contains, as typed JSON.

    Raises Redacted if the content of any of the records' files was redacted.
    """
    wanted = set(records)
    locations = RecordLocation.objects.filter(
        user=checkpoint.user_id, key__in={record.key for record in wanted}
    )
    paths = set()
    for location in locations:
        if _id_of(location) not in wanted:
            continue
        if location.ended_by is None:
            paths.add(location.path)
        else:  # in an earlier life, the record may have been in another file of its domain
            home = f"domains/{location.domain}/"
            paths |= {path for path in checkpoint.tree if path.startswith(home)}
    located = differences.records_in(checkpoint, paths)
    return {record: value for record, (_, value) in located.items() if record in wanted}


def trace_record(location: RecordLocation) -> RecordOrigin | None:
    """Return a record and where each of its fields comes from, or None if no version contains it.

    A retired record is read from the last version that contained it. Raises Redacted if the content
    of the record's file was redacted.
    """
    user, record_id = location.user, _id_of(location)
    checkpoint = _last_version_of(location)
    record = read_records(checkpoint, [record_id]).get(record_id) if checkpoint else None
    if record is None:
        return None
    sources, class_name = record["sources"], record["$record"]
    behind = last_edits(user, record_id, class_name, sources)
    return RecordOrigin(
        class_name,
        [
            FieldOrigin(name, value, behind.get(name, () if value is None else sources))
            for name, value in record["fields"].items()
        ],
        sources,
    )


def _id_of(location: RecordLocation) -> RecordId:
    return RecordId(location.domain, location.collection, location.key)


def _last_version_of(location: RecordLocation) -> Checkpoint | None:
    if location.retired_version is None:
        return location.user.head
    versions = Checkpoint.objects.filter(user=location.user, version=location.retired_version - 1)
    return versions.first()


def last_edits(
    user: MemoryUser, record: RecordId, class_name: str, sources: Sequence[int]
) -> Mapping[str, list[int]]:
    """Map each field to the entries cited by the edit that last set it.

    Only the versions that processed the record's entries are searched, back to where its present
    life began. Fields that no edit in these versions sets are left out: the field may be empty or
    have been renamed, or the record may have been imported.
    """
    settled = EntryOutcome.objects.filter(user=user, seq__in=sources, checkpoint__isnull=False)
    versions = Checkpoint.objects.filter(pk__in=settled.order_by().values("checkpoint"))
    newest = versions.order_by("-version").values_list("edits", flat=True)[:MAX_VERSIONS]
    by_field: dict[str, list[int]] = {}
    for edits in newest:
        for edit in reversed(edits):
            if _retires(edit, record):
                return by_field
            if _is_about(edit, record, class_name):
                for name in fields_set(edit):
                    by_field.setdefault(name, sorted(edit["sources"]))
    return by_field


def keys_behind(entries: Mapping[int, AbstractSet[int]]) -> set[tuple[int, str]]:
    """Return (user, key) for each record that was made or changed from the given users' entries."""
    outcomes = Q(pk=None)
    for user, seqs in entries.items():
        outcomes |= Q(user=user, seq__in=seqs)
    settled = EntryOutcome.objects.filter(outcomes, checkpoint__isnull=False)
    versions = Checkpoint.objects.filter(pk__in=settled.order_by().values("checkpoint"))
    return {
        (user, edit.get("key") or key_of_entry(edit["class_name"], max(edit["sources"])))
        for user, edits in versions.order_by().values_list("user_id", "edits")
        for edit in edits
        if edit.get("op") in ("add", "update") and not edit.get("redacted")
        if not entries[user].isdisjoint(edit["sources"])
    }


def _retires(edit: Mapping[str, Any], record: RecordId) -> bool:
    names = (edit.get("domain"), edit.get("collection"), edit.get("key"))
    return edit["op"] == "retire" and names == record


def _is_about(edit: Mapping[str, Any], record: RecordId, class_name: str) -> bool:
    """Return whether an edit sets this record's fields; an `add` may omit collection and key.

    Returns False for a redacted edit, which no longer identifies the record it was about.
    """
    if edit.get("redacted"):
        return False
    if edit.get("op") not in ("add", "update") or edit["domain"] != record.domain:
        return False
    if edit["op"] == "update":
        return (edit["collection"], edit["key"]) == (record.collection, record.key)
    if edit["class_name"] != class_name or edit.get("collection") not in (None, record.collection):
        return False
    if edit.get("key") is not None:
        return bool(edit["key"] == record.key)
    base = key_of_entry(class_name, max(edit["sources"]))
    return record.key == base or record.key.startswith(f"{base}-")
