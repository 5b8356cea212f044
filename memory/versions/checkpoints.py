"""Reading versions (checkpoints) of a user's project, and moving the project's head.

The head is moved by compare-and-set, in one short transaction that also writes everything that
follows from the move. Slow work (compiling entries, running the gate) is done beforehand, on a
candidate version that nobody else can see.
"""

import base64
import datetime
import zoneinfo
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from memory.kernel.canonical import git_blob_id, sha256
from memory.kernel.hooks import later
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.kernel.work import leases
from memory.log import lanes
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.project import Change, Location, Outline, Project, RecordId
from memory.versions import runs
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, Origin, RecordLocation
from memory.versions.models.runs import Run


class HeadMoved(Exception):
    """The head has moved since the candidate was built, so the candidate must be rebuilt."""


class Redacted(Refused):
    """The requested content has been redacted, so it is no longer available."""

    status = 410


@dataclass(frozen=True)
class Decision:
    """A log entry's outcome, to be stored with the checkpoint that settles the entry.

    `set_aside` names the fields whose values in the entry did not fit.
    """

    seq: int
    outcome: str
    reason: str = ""
    set_aside: Sequence[str] = ()
    superseded_by: Sequence[int] | None = None


# It may lock the workspace's event counter, so it comes last in a transaction.
_record_entry_events: Callable[
    [LeasedWork, MemoryUser, Sequence[Decision], datetime.datetime], None
] = later("memory.alerts.alert_events:record_entries")
# Whether a run of a version's constraints could change an alert.
_wants_constraints_run: Callable[[Checkpoint], bool] = later(
    "memory.constraints.applicability:wants_constraints_run"
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A change to the project that has passed the gate and is waiting to become the head."""

    parent: Checkpoint | None
    change: Change
    edits: Sequence[Mapping[str, Any]]
    origin: Origin
    seen_seq: int
    verdict: Mapping[str, Any]
    bytecode: Mapping[str, str]
    image_digest: str


@dataclass(frozen=True, kw_only=True)
class State:
    """A state of a user's project that is not stored as a version (`versions.computed_states`).

    It has the number of the version from which it was computed, or 0 if there was no version.
    """

    user: MemoryUser
    version: int = 0
    tree: Mapping[str, str] = field(default_factory=dict)  # path → hash
    texts: Mapping[str, str] = field(default_factory=dict)  # path → source, of files in no blob
    outline: Mapping[str, Any] = field(default_factory=lambda: Outline().to_json())
    seen_seq: int = 0
    created_at: datetime.datetime = field(default_factory=timezone.now)  # that of the version
    rejected: Sequence[int] = ()  # the typed entries that the computation rejected
    # The entries behind each record, if the state is by the entries' own times.
    behind: Mapping[RecordId, Sequence[int]] = field(default_factory=dict)

    @property
    def user_id(self) -> int:
        """The user's primary key."""
        return self.user.pk


AnyState = Checkpoint | State


def open_project(
    checkpoint: AnyState | None,
    user: MemoryUser,
    *,
    keys: Collection[str] = (),
    as_of: bool = False,
) -> Project:
    """Open a version of the project for editing; a file is read only when an edit needs it.

    Records with these `keys` are located with a single query, other records one at a time. The
    record index describes only the head; if `as_of` is set, it is read as of the checkpoint's
    version, which is correct unless a rollback has since rewritten the index. If the index is
    wrong, opening the project or applying an edit raises an error.
    """
    zone = zoneinfo.ZoneInfo(user.time_zone)
    if checkpoint is None:
        return Project.empty(zone)
    version = checkpoint.version if as_of else None
    requested = frozenset(keys)
    by_location = _locations(user, version, key__in=requested) if requested else {}

    def locate(domain: str, collection: str, key: str) -> Location | None:
        if key not in requested:
            one = _locations(user, version, domain=domain, collection=collection, key=key)
            return one.get((domain, collection, key))
        return by_location.get((domain, collection, key))

    return Project.open(
        Outline.from_json(checkpoint.outline),
        lambda path: read_file(checkpoint, path),
        locate,
        zone,
    )


def _locations(
    user: MemoryUser, version: int | None, **where: Any
) -> dict[tuple[str, str, str], Location]:
    """Return the records' locations from the index, current or as of the version `version`."""
    return {
        (row.domain, row.collection, row.key): Location(
            row.path,
            retired=row.retired_version is not None
            and (version is None or row.retired_version <= version),
            ended_by=row.ended_by,
        )
        for row in RecordLocation.objects.filter(user=user, **where)
        if version is None or row.added_version <= version
    }


def read_file(checkpoint: AnyState, path: str) -> str:
    """Return the text of a file of this version or state.

    Raises KeyError if it has no such file, and Redacted if the file's content was redacted.
    """
    return read_files(checkpoint, [path])[path]


def read_files(checkpoint: AnyState, paths: Collection[str] | None = None) -> dict[str, str]:
    """Return path → source for these files of the version; by default, for all of its files.

    Raises Redacted if the content of any of these files was redacted.
    """
    wanted = checkpoint.tree if paths is None else checkpoint.tree.keys() & set(paths)
    tree = {path: checkpoint.tree[path] for path in sorted(wanted)}
    texts = checkpoint.texts if isinstance(checkpoint, State) else {}
    texts_by_path = {path: texts[path] for path in tree if path in texts}
    contents = dict(
        Blob.objects.filter(
            user_id=checkpoint.user_id,
            hash__in={hash_ for path, hash_ in tree.items() if path not in texts_by_path},
        ).values_list("hash", "content")
    )
    for path, hash_ in tree.items():
        if path in texts_by_path:
            continue
        if (content := contents[hash_]) is None:
            raise Redacted(
                f"{path} of version {checkpoint.version} is based on an entry that was redacted"
                " later."
            )
        texts_by_path[path] = content
    return texts_by_path


def is_redacted(checkpoint: AnyState) -> bool:
    """Return whether the content of any file of this version was redacted."""
    hashes = set(checkpoint.tree.values())
    return Blob.objects.filter(user_id=checkpoint.user_id, content=None, hash__in=hashes).exists()


@dataclass(frozen=True)
class Modules:
    """A version as a sandbox loads it: for each path, the bytecode if any, otherwise the source."""

    sources: Mapping[str, str]
    bytecode: Mapping[str, str]


def read_modules(
    checkpoint: AnyState, image_digest: str, *, without: Collection[str] = ()
) -> Modules:
    """Return the version's files in the form that this image loads, except those in `without`.

    Bytecode is encoded in base64. Raises Redacted if the content of a file was redacted.
    """
    tree = {path: hash_ for path, hash_ in checkpoint.tree.items() if path not in without}
    rows = Bytecode.objects.filter(
        user_id=checkpoint.user_id,
        image_digest=image_digest,
        source_hash__in=set(tree.values()),
    ).values_list("path", "source_hash", "code")
    compiled = {(path, hash_): bytes(code) for path, hash_, code in rows}
    bytecode = {
        path: base64.b64encode(compiled[path, hash_]).decode()
        for path, hash_ in tree.items()
        if (path, hash_) in compiled
    }
    missing = [path for path in tree if path not in bytecode]
    return Modules(read_files(checkpoint, missing) if missing else {}, bytecode)


def commit(
    work: LeasedWork,
    user: MemoryUser,
    candidate: Candidate | None,
    decisions: Sequence[Decision],
) -> Checkpoint | None:
    """Make the candidate the head, and write everything that follows from that, in one transaction.

    Without a candidate, only the entries' outcomes are written. `work` is the work item that the
    caller has claimed. Raises HeadMoved if the candidate's parent is no longer the head, and
    LeaseLost if the caller has lost its claim; in either case nothing is written.
    """
    with transaction.atomic(savepoint=False):
        locked = MemoryUser.objects.locked(user.pk)
        leases.check(work)
        checkpoint, at = None, timezone.now()
        if candidate is not None:
            checkpoint = _create(locked, candidate)
            make_head(locked, checkpoint)
            at = checkpoint.created_at
        EntryOutcome.objects.bulk_create(
            EntryOutcome(
                user=locked,
                seq=decision.seq,
                outcome=decision.outcome,
                checkpoint_id=locked.head_id,
                reason=decision.reason,
                set_aside=list(decision.set_aside),
                superseded_by=decision.superseded_by,
                decided_at=at,
            )
            for decision in decisions
        )
        # If the work item is a lane, its pending entries are recounted when the worker releases it.
        if decisions and isinstance(work, Run):
            lanes.recount(user.pk)
        _record_entry_events(work, locked, decisions, at)
    return checkpoint


def _create(user: MemoryUser, candidate: Candidate) -> Checkpoint:
    """Create the version, with its files and bytecode, and update the index of records."""
    change, parent = candidate.change, candidate.parent
    if user.head_id != (parent.pk if parent else None):
        raise HeadMoved(f"{user}: the head moved while a candidate was being built on {parent}")
    sources = {path: text for path, text in change.files.items() if text is not None}
    hashes = {path: sha256(text) for path, text in sources.items()}
    git_ids = {path: git_blob_id(text.encode()) for path, text in sources.items()}
    Blob.objects.bulk_create(
        [
            Blob(user=user, hash=hashes[path], content=text, git_id=git_ids[path])
            for path, text in sources.items()
        ],
        ignore_conflicts=True,
    )
    for blob in Blob.objects.filter(user=user, hash__in=hashes.values(), content=None):
        # This file's content was redacted, but somebody who knows the content has written it
        # again.
        blob.content = next(text for path, text in sources.items() if hashes[path] == blob.hash)
        blob.save(update_fields=["content"])
    tree = {**(parent.tree if parent else {}), **hashes}
    for path, text in change.files.items():
        if text is None:
            del tree[path]
    checkpoint = Checkpoint.objects.create(
        user=user,
        version=parent.version + 1 if parent else 1,
        parent=parent,
        tree=tree,
        outline=change.outline.to_json(),
        seen_seq=candidate.seen_seq,
        origin=candidate.origin,
        edits=list(candidate.edits),
        verdict=dict(candidate.verdict),
    )
    store_bytecode(checkpoint, candidate.bytecode, candidate.image_digest)
    _move_records(user, checkpoint, change)
    return checkpoint


def add_restored(user: MemoryUser, content: Checkpoint, verdict: Mapping[str, Any]) -> Checkpoint:
    """Store a version's content again, as the version after the user's head, and return it.

    `make_head` then makes it the head.
    """
    head = user.head
    assert head is not None
    return Checkpoint.objects.create(
        user=user,
        version=head.version + 1,
        parent=head,
        tree=content.tree,
        outline=content.outline,
        seen_seq=head.seen_seq,
        origin=Origin.RESTORED,
        edits=[],
        verdict=verdict,
    )


def make_head(user: MemoryUser, checkpoint: Checkpoint) -> None:
    """Make this version the user's newest version, and queue a run of its constraints.

    The caller must have locked the user's row. A run is queued even if only the parent version had
    constraints, so that their alerts are resolved.
    """
    user.head = checkpoint
    user.save(update_fields=["head"])
    parent = checkpoint.parent
    if any(_wants_constraints_run(one) for one in (checkpoint, parent) if one):
        runs.queue_constraints(user, checkpoint)


def forget_bytecode(checkpoint: AnyState, image_digest: str) -> None:
    """Delete the bytecode that this sandbox image compiled from this version's files."""
    Bytecode.objects.filter(
        user_id=checkpoint.user_id,
        image_digest=image_digest,
        source_hash__in=set(checkpoint.tree.values()),
    ).delete()


def _move_records(user: MemoryUser, checkpoint: Checkpoint, change: Change) -> None:
    version = checkpoint.version
    added = [
        RecordLocation(
            user=user,
            **record._asdict(),
            path=change.records[record].path,
            added_version=version,
        )
        for record in change.added
    ]
    # A record added and retired in the same change isn't in any file.
    transient = [
        RecordLocation(
            user=user,
            **record._asdict(),
            path="",
            added_version=version,
            retired_version=version,
        )
        for record in change.transient
    ]
    RecordLocation.objects.bulk_create(
        added,
        update_conflicts=True,  # the row of a retired record that comes back
        unique_fields=["user", *RecordId._fields],
        update_fields=["path", "retired_version"],
    )
    RecordLocation.objects.bulk_create(transient, ignore_conflicts=True)
    ended_by = _newest_of(user, change.ended)
    for record in {*change.retired, *change.ended}:
        changed: dict[str, Any] = {}
        if record in change.retired:
            changed["retired_version"] = version
        if record in change.ended:
            changed["ended_by"] = ended_by[record]
        if record in change.records:  # a record that came back may have been put into another file
            changed["path"] = change.records[record].path
        RecordLocation.objects.filter(user=user, **record._asdict()).update(**changed)


def _newest_of(user: MemoryUser, entries: Mapping[RecordId, Sequence[int]]) -> dict[RecordId, int]:
    """Return the one of each record's entries that occurred last."""
    several = {seq for seqs in entries.values() if len(seqs) > 1 for seq in seqs}
    occurred: dict[int, datetime.datetime] = {}
    if several:
        rows = LogEntry.objects.filter(user=user, seq__in=several)
        occurred = dict(rows.values_list("seq", "occurred_at"))
    return {
        record: max(seqs, key=lambda seq: (occurred[seq], seq)) if len(seqs) > 1 else seqs[0]
        for record, seqs in entries.items()
    }


def store_bytecode(checkpoint: AnyState, bytecode: Mapping[str, str], image_digest: str) -> None:
    """Store the bytecode (path → base64) that this sandbox image compiled from a version's files.

    No bytecode is stored for files that were computed to answer a single request, because a
    redaction would not find it.
    """
    computed = checkpoint.texts if isinstance(checkpoint, State) else {}
    Bytecode.objects.bulk_create(
        [
            Bytecode(
                user_id=checkpoint.user_id,
                path=path,
                source_hash=checkpoint.tree[path],
                image_digest=image_digest,
                code=base64.b64decode(code),
            )
            for path, code in bytecode.items()
            if path not in computed
        ],
        ignore_conflicts=True,
    )


def outline(checkpoint: AnyState | None) -> Outline:
    """Return the outline of a version, or an empty outline if there is no version."""
    return Outline.from_json(checkpoint.outline) if checkpoint else Outline()
