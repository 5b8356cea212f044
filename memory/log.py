"""The append-only log: the one way in, and the proof that nothing was changed since."""

import datetime
import hashlib
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from memory import scheduling
from memory.canonical import canonical_json
from memory.hints import hint
from memory.lanes import KINDS
from memory.models import EntryOutcome, Lane, LogEntry, MemoryUser
from memory.models.log import EntryKind, Outcome
from memory.models.users import LaneName
from memory.search import announcing

PAYLOAD_FIELDS = (
    "content",
    "data",
    "metadata",
    "session_id",
    "role",
    "speaker",
    "agent_id",
    "source",
    "idempotency_key",
)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An entry that is not in the log yet. `occurred_at` is aware; None means now."""

    kind: EntryKind
    occurred_at: datetime.datetime | None = None
    content: str | None = None
    data: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    session_id: str | None = None
    role: str | None = None
    speaker: str | None = None
    agent_id: str | None = None
    idempotency_key: str | None = None
    derived_from: Sequence[int] = field(default=())


class IdempotencyConflict(Exception):
    """The key was used before, for an entry that says something else."""

    def __init__(self, key: str, seq: int) -> None:
        self.key = key
        self.seq = seq
        super().__init__(
            f"idempotency_key {key!r} belongs to entry {seq}, which has another body;"
            " use a new key for a new entry"
        )


def append(user: MemoryUser, drafts: Sequence[Draft], *, source: str) -> list[LogEntry]:
    """Append the drafts in order, all or none, and return their entries, one per draft.

    A draft whose idempotency key is already in the log stands for the entry that has it. Raises
    IdempotencyConflict where that entry says something else.
    """
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        now = timezone.now()
        keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
        known = (
            {
                entry.idempotency_key: entry
                for entry in LogEntry.objects.filter(user=locked, idempotency_key__in=keys)
            }
            if keys
            else {}
        )

        entries: list[LogEntry] = []
        new: list[LogEntry] = []
        for draft in drafts:
            if earlier := known.get(draft.idempotency_key) if draft.idempotency_key else None:
                if not _says_the_same(earlier, draft):
                    raise IdempotencyConflict(str(draft.idempotency_key), earlier.seq)
                entries.append(earlier)
                continue
            entry = _chain(locked, draft, source=source, now=now)
            if draft.idempotency_key is not None:
                known[draft.idempotency_key] = entry
            entries.append(entry)
            new.append(entry)

        if new:
            LogEntry.objects.bulk_create(new)
            locked.save(update_fields=["last_seq", "last_hash"])
            announcing.appended(locked.pk, new)
        if any(entry.kind == EntryKind.RECORD for entry in new):
            Lane.objects.filter(user=locked, name=LaneName.RECORDS, due_at=None).update(due_at=now)
            hint("workers.tasks.checkpoint_records", locked.pk, user_pk=locked.pk)
        said = [entry for entry in new if entry.kind in KINDS[LaneName.STRUCTURE]]
        if said:
            urgent = any(scheduling.is_urgent(entry.metadata) for entry in said)
            if scheduling.announce(
                locked.pk, len(said), first=now, last=now, urgent=urgent, now=now
            ):
                hint("workers.tasks.structure", locked.pk)
    return entries


def _chain(user: MemoryUser, draft: Draft, *, source: str, now: datetime.datetime) -> LogEntry:
    """Build the entry that follows the user's last one, and move the user's end of log to it."""
    entry = LogEntry(
        user=user,
        seq=user.last_seq + 1,
        kind=draft.kind,
        occurred_at=draft.occurred_at or now,
        recorded_at=now,
        derived_from=list(draft.derived_from),
        content=draft.content,
        data=draft.data,
        metadata=draft.metadata,
        session_id=draft.session_id,
        role=draft.role,
        speaker=draft.speaker,
        agent_id=draft.agent_id,
        source=source,
        idempotency_key=draft.idempotency_key,
        salt=secrets.token_bytes(16),
    )
    entry.payload_hash = payload_hash(entry)
    entry.hash = entry_hash(bytes(user.last_hash), entry)
    user.last_seq = entry.seq
    user.last_hash = entry.hash
    return entry


def _says_the_same(entry: LogEntry, draft: Draft) -> bool:
    same_time = draft.occurred_at is None or draft.occurred_at == entry.occurred_at
    names = [name for name in PAYLOAD_FIELDS if name != "source"]
    return (
        same_time
        and entry.kind == draft.kind
        and list(entry.derived_from) == list(draft.derived_from)
        and canonical_json([getattr(entry, name) for name in names])
        == canonical_json([getattr(draft, name) for name in names])
    )


def payload_hash(entry: LogEntry) -> bytes:
    """Return H(salt ‖ payload). The salt keeps a redacted payload from being guessed."""
    payload = canonical_json({name: getattr(entry, name) for name in PAYLOAD_FIELDS})
    return hashlib.sha256(bytes(entry.salt or b"") + payload.encode()).digest()


def entry_hash(previous: bytes, entry: LogEntry) -> bytes:
    """Return H(previous, seq, kind, times, derived_from, payload hash): 32 bytes."""
    line = canonical_json(
        [
            previous.hex(),
            entry.seq,
            entry.kind,
            _instant(entry.occurred_at),
            _instant(entry.recorded_at),
            list(entry.derived_from),
            bytes(entry.payload_hash).hex(),
        ]
    )
    return hashlib.sha256(line.encode()).digest()


def _instant(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat(timespec="microseconds")


def broken_links(user: MemoryUser) -> Iterable[str]:
    """Walk the user's whole log and yield a sentence for each thing that is not as it was written.

    A redacted entry's payload is gone; its place in the chain is still checked.
    """
    previous = bytes(32)
    expected = 1
    for entry in LogEntry.objects.filter(user=user).order_by("seq").iterator(chunk_size=2000):
        if entry.seq != expected:
            yield f"entry {expected} is missing: the next one is {entry.seq}"
            expected = entry.seq
        if entry.redacted_at is None and payload_hash(entry) != bytes(entry.payload_hash):
            yield f"entry {entry.seq}: its content is not what was hashed"
        if entry.redacted_at is not None and any(
            getattr(entry, name) is not None for name in (*PAYLOAD_FIELDS, "salt")
        ):
            yield f"entry {entry.seq}: it is redacted and has content"
        if entry_hash(previous, entry) != bytes(entry.hash):
            yield f"entry {entry.seq}: its hash does not follow from the entry before it"
        previous = bytes(entry.hash)
        expected += 1
    if user.last_seq != expected - 1 or bytes(user.last_hash) != previous:
        yield f"the log ends at entry {expected - 1}, the user says {user.last_seq}"


@dataclass(frozen=True)
class Coverage:
    """What became of a log's entries. The four parts add up to the total."""

    total: int
    pending: int
    covered: int
    dismissed: int
    rejected: int


def coverage(user: MemoryUser) -> Coverage:
    """Count the entries by outcome, in one consistent snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT u.last_seq,
                   count(o.seq) FILTER (WHERE o.outcome = %s),
                   count(o.seq) FILTER (WHERE o.outcome = %s),
                   count(o.seq) FILTER (WHERE o.outcome = %s)
            FROM memory_memoryuser u LEFT JOIN memory_entryoutcome o ON o.user_id = u.id
            WHERE u.id = %s GROUP BY u.id
            """,
            [Outcome.COVERED, Outcome.DISMISSED, Outcome.REJECTED, user.pk],
        )
        total, covered, dismissed, rejected = cursor.fetchone()
    return Coverage(
        total=total,
        pending=total - covered - dismissed - rejected,
        covered=covered,
        dismissed=dismissed,
        rejected=rejected,
    )


def outcomes(user: MemoryUser, seqs: Iterable[int]) -> dict[int, EntryOutcome]:
    """Return the outcomes of these entries by seq; a pending entry is not in it.

    Of the checkpoint only its version is there: a whole one is large, and many entries share it.
    """
    decided = EntryOutcome.objects.filter(user=user, seq__in=list(seqs))
    return {
        outcome.seq: outcome
        for outcome in decided.select_related("checkpoint").only(
            "user", "seq", "outcome", "reason", "decided_at", "checkpoint__version"
        )
    }


def read(user: MemoryUser, seqs: Sequence[int]) -> list[LogEntry]:
    """Return these entries of the log, in the order in which they are named."""
    found = {entry.seq: entry for entry in LogEntry.objects.filter(user=user, seq__in=seqs)}
    return [found[seq] for seq in seqs]


def all_decided(user: MemoryUser, seqs: Collection[int]) -> bool:
    """Tell whether every one of these entries has an outcome."""
    return EntryOutcome.objects.filter(user=user, seq__in=seqs).count() == len(seqs)
