"""Differences between two versions: the changed records, and which entries caused each change."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.project import Outline, RecordId
from memory.project.parse import parse_state
from memory.project.paths import domain_name, holds_records, is_code
from memory.project.typed import encode
from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState, State
from memory.versions.models.checkpoints import Checkpoint


@dataclass(frozen=True)
class RecordChange:
    """A change to a record: its typed JSON before and after, or None if the record didn't exist.

    `entries` are the entries cited by the edits that made the change.
    """

    record: RecordId
    before: Any
    after: Any
    entries: Sequence[int]


@dataclass(frozen=True)
class Difference:
    """The differences between two versions, with records sorted by domain, collection and key."""

    added: list[RecordChange] = field(default_factory=list)
    changed: list[RecordChange] = field(default_factory=list)
    retired: list[RecordChange] = field(default_factory=list)
    files: Sequence[str] = ()


def difference(before: AnyState | None, after: AnyState | None) -> Difference:
    """Return what changed from one version of a user's project to another (older or newer) one.

    Only files that differ are read. The result's `files` lists the schemas, constraints and tests
    that differ.
    """
    differing = differing_paths(before, after)
    were = {record: value for record, (_, value) in records_in(before, differing).items()}
    are = {record: value for record, (_, value) in records_in(after, differing).items()}
    causes, of_classes = _causes(before, after)
    result = Difference(files=sorted(path for path in differing if is_code(path)))
    for record in sorted(were.keys() | are.keys()):
        was, now = were.get(record), are.get(record)
        if _equal_values(was, now):
            continue
        cited = set(causes.get(record, ()))
        if record not in causes:  # a rollback or an import made the change
            cited |= set(_sources(now)) ^ set(_sources(was))
        if not cited and now is not None:  # a field of the record's class was renamed
            cited = of_classes.get((record.domain, now["$record"]), cited)
        change = RecordChange(record, was, now, sorted(cited))
        kind = result.added if was is None else result.retired if now is None else result.changed
        kind.append(change)
    return result


def differing_paths(before: AnyState | None, after: AnyState | None) -> set[str]:
    """Return the paths of the files that differ between two versions."""
    old, new = (one.tree if one else {} for one in (before, after))
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def records_in(
    checkpoint: AnyState | None, paths: Iterable[str]
) -> dict[RecordId, tuple[str, Any]]:
    """Map each record in some of a version's files to its file's path and its typed JSON.

    Raises Redacted if any of the files was redacted.
    """
    if checkpoint is None:
        return {}
    wanted = [path for path in paths if holds_records(path) and path in checkpoint.tree]
    outline = Outline.from_json(checkpoint.outline) if wanted else Outline()
    located = {}
    for path, source in checkpoints.read_files(checkpoint, wanted).items():
        domain = outline.domains[domain_name(path)]
        for name, by_key in parse_state(path, source, domain).records.items():
            for key, record in by_key.items():
                located[RecordId(domain.name, name, key)] = path, encode(record, domain)
    return located


def _equal_values(was: Any, now: Any) -> bool:
    """Return whether two states of a record are equal, treating fields that are None as missing."""
    if was is None or now is None or was == now:
        return bool(was == now)
    fields = [{k: v for k, v in one["fields"].items() if v is not None} for one in (was, now)]
    return fields[0] == fields[1] and {**was, "fields": None} == {**now, "fields": None}


def _sources(record: Any) -> Sequence[int]:
    return record["sources"] if record is not None else ()


def _causes(
    before: AnyState | None, after: AnyState | None
) -> tuple[dict[RecordId, set[int]], dict[tuple[str, str], set[int]]]:
    """Return the entries cited by the edits between two versions, as two mappings.

    The first mapping is keyed by record. The second, for edits that affect all of a class's
    records, is keyed by domain and class.
    """
    user = (after or before).user_id if (after or before) else None  # type: ignore[union-attr]
    low, high = sorted([before, after], key=lambda one: (one.version, one.seen_seq) if one else ())
    causes: dict[RecordId, set[int]] = {}
    of_classes: dict[tuple[str, str], set[int]] = {}
    old, new = (one.behind if isinstance(one, State) else {} for one in (before, after))
    if before and after and (old or new):  # by the entries' own times
        for record in old.keys() | new.keys():
            causes[record] = set(old.get(record, ())) ^ set(new.get(record, ()))
        return causes, of_classes
    first = low.version + (not isinstance(low, State)) if low else 1
    last = high.version if high else 0
    between = Checkpoint.objects.filter(user=user, version__gte=first, version__lte=last)
    rows = between.order_by().values_list("version", "edits")
    for version, edits in rows.iterator(chunk_size=100):
        above = low.seen_seq if isinstance(low, State) and version == low.version else 0
        below = high.seen_seq if isinstance(high, State) and version == last else None
        for edit in edits:
            names = (edit.get("domain"), edit.get("collection"), edit.get("key"))
            cited = edit.get("sources", ())
            if any(seq <= above or (below is not None and seq > below) for seq in cited):
                continue  # the edit is included in both states, or in neither
            if all(isinstance(name, str) for name in names):
                causes.setdefault(RecordId(*names), set()).update(cited)
            elif edit.get("op") == "rename_field" and not edit.get("redacted"):
                of_classes.setdefault((names[0], edit["class_name"]), set()).update(cited)
    return causes, of_classes
