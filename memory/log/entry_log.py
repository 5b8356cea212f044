"""The append-only log: appending, reading and verifying entries."""

import datetime
import hashlib
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from django.contrib.postgres.aggregates import StringAgg
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import F, Func, IntegerField, Q, TextField
from django.db.models.functions import Cast, Coalesce, Left
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memory.kernel.canonical import canonical_json, exact_json, utf8_json
from memory.kernel.database.timeouts import retry_deadlocks
from memory.kernel.hooks import later
from memory.kernel.models.users import LaneName, MemoryUser
from memory.kernel.users import refuse_merged
from memory.kernel.work.hints import hint
from memory.log import batching, content_policy
from memory.log.lanes import KINDS
from memory.log.models.entries import (
    PAYLOAD_FIELDS,
    EntryKind,
    EntryOutcome,
    LogEntry,
    Outcome,
    Trust,
)
from memory.project import RecordEntry
from memory.project.names import DEFAULT_DOMAIN
from sandbox_image.uac.records import LAPSES_AFTER

# In the data of a fact or correction, the last day on which it holds.
VALID_UNTIL = "valid_until"
# The roles, as chat SDKs name them, of messages that the person did not write.
_TRUST_OF_ROLES = {
    **dict.fromkeys(("assistant", "model", "ai"), Trust.MODEL),
    **dict.fromkeys(("tool", "function", "system", "developer"), Trust.TOOL),
}
_announce: Callable[[MemoryUser, Sequence[LogEntry]], None] = later(
    "memory.recall.search.announcing:appended"
)


def _octets(column: str) -> Any:
    """Return a Django expression for the size in bytes of a log entry's column."""
    text = Cast(column, TextField())
    return Coalesce(Func(text, function="octet_length", output_field=IntegerField()), 0)


# An entry's size in bytes, counting only the columns that can be large.
BYTES = _octets("content") + _octets("data") + _octets("metadata")

COLUMNS = [field.attname for field in LogEntry._meta.concrete_fields]

# An entry's number and hash depend on the previous entry's, so appending locks the user's row.
LOCK = (
    "SELECT last_seq, last_hash, log_bytes, merged_into_id IS NOT NULL, last_given_time"
    " FROM memory_memoryuser WHERE id = %s AND erased_at IS NULL FOR NO KEY UPDATE"
)


def _read(column: str) -> str:
    """Return the SQL expression that reads this column from an entry passed as JSON.

    JSON columns are passed as text: when PostgreSQL splits JSON into columns, it rejects values
    that it accepts in a JSON column (lone surrogates).
    """
    return f"({column} #>> '{{}}')::json" if column in ("data", "metadata") else column


# A single statement appends any number of entries. The processing of typed records is due
# immediately.
APPEND = f"""
WITH appended AS (
    INSERT INTO memory_logentry ({", ".join(COLUMNS)}) SELECT {", ".join(map(_read, COLUMNS))}
    FROM json_populate_recordset(NULL::memory_logentry, %(entries)s::json)
), announced AS (
    UPDATE memory_lane SET due_at = %(now)s, cursor_seq = %(before)s
    WHERE user_id = %(user)s AND name = 'records' AND due_at IS NULL AND %(typed)s
)
UPDATE memory_memoryuser
SET last_seq = %(last_seq)s, last_hash = %(last_hash)s, log_bytes = %(log_bytes)s,
    last_given_time = %(given_time)s
WHERE id = %(user)s
"""  # noqa: S608  # nosec B608 # names of our own columns


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An entry to be appended to the log.

    `occurred_at` is timezone-aware; None means now. Without `trust`, the role decides.
    """

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
    trust: Trust | None = None
    source: str | None = None  # set only for a copy: the source of the original entry


class IdempotencyConflict(Exception):
    """The idempotency key was used before, for a different entry."""

    def __init__(self, key: str, seq: int) -> None:
        self.key = key
        self.seq = seq
        super().__init__(
            f"`idempotency_key` {key!r} belongs to entry {seq}, which has a different body. Use a"
            " new key for a new entry."
        )


@retry_deadlocks
def append(
    user: MemoryUser,
    drafts: Sequence[Draft],
    *,
    source: str,
    policy: Mapping[str, str] | None = None,
    may_refuse: bool = True,
) -> list[LogEntry]:
    """Append the drafts in order, all or nothing, and return one entry per draft.

    The content policy, by default that of the user's workspace, decides on secrets and personal
    data: what it masks is not in the entries, and what it refuses raises ContentRefused. Without
    `may_refuse`, that is masked as well, since nobody is there to change the drafts.

    If a draft's idempotency key is already in the log, the existing entry is returned and nothing
    is appended for that draft; also if that entry was cleared. Raises IdempotencyConflict if an
    entry that was not cleared differs from the draft, and UserMerged if the user was merged into
    another one: a merged user's log accepts only redactions.
    """
    policy = user.workspace.content_policy if policy is None else policy
    admitted, refused = _admit(drafts, policy, may_refuse=may_refuse)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LOCK, [user.pk])
        row = cursor.fetchone()
        if row is None:
            raise MemoryUser.DoesNotExist(f"{user} is gone")
        seq, previous, size, is_merged, last_given_time = row
        if is_merged and any(draft.kind != EntryKind.REDACTION for draft in drafts):
            refuse_merged(MemoryUser.objects.get(pk=user.pk))
        now = timezone.now()
        given_time = max(now, last_given_time or now)
        existing = find_by_key(user, (draft.idempotency_key for draft in drafts))
        entries: list[LogEntry] = []
        new: list[LogEntry] = []
        for index, (given, draft) in enumerate(zip(drafts, admitted, strict=True)):
            if earlier := existing.get(draft.idempotency_key) if draft.idempotency_key else None:
                # The policy may have changed since.
                is_same = says_the_same(earlier, draft) or says_the_same(earlier, given)
                if earlier.redacted_at is None and not is_same:
                    raise IdempotencyConflict(str(draft.idempotency_key), earlier.seq)
                entries.append(earlier)
                refused.pop(index, None)
                continue
            seq += 1
            entry, length = _entry(
                user, seq, previous, draft, source=source, now=now, given_time=given_time
            )
            previous, size = entry.hash, size + length
            if draft.idempotency_key is not None:
                existing[draft.idempotency_key] = entry
            entries.append(entry)
            new.append(entry)

        if refused:
            raise content_policy.ContentRefused(refused, is_batch=len(drafts) > 1)
        if new:
            _store(cursor, user, new, log_bytes=size, now=now, given_time=given_time)
            _announce_messages(user, new, now)
    return entries


def _admit(
    drafts: Sequence[Draft], policy: Mapping[str, str], *, may_refuse: bool
) -> tuple[Sequence[Draft], dict[int, Sequence[content_policy.Finding]]]:
    """Return the drafts as the content policy lets them in, and what it refuses, by their index.

    Copies of entries entered before, and nothing may prevent a redaction: both stay as they are.
    """
    entering = [
        (index, draft)
        for index, draft in enumerate(drafts)
        if draft.source is None and draft.kind != EntryKind.REDACTION
    ]
    if not policy or not entering:
        return drafts, {}
    admitted, deadline = list(drafts), content_policy.deadline(policy)
    refused: dict[int, Sequence[content_policy.Finding]] = {}
    for index, draft in entering:
        inspection = content_policy.Inspection(policy, deadline, may_refuse=may_refuse)
        admitted[index] = _inspect(draft, inspection)
        if inspection.refused:
            refused[index] = inspection.refused
    return admitted, refused


def _inspect(draft: Draft, inspection: content_policy.Inspection) -> Draft:
    for name in ("session_id", "role", "speaker", "agent_id", "idempotency_key"):
        inspection.name(getattr(draft, name) or "", name)
    data = draft.data
    if draft.kind == EntryKind.RECORD and data is not None:
        for name in ("domain", "type", "collection", "key"):
            inspection.name(data.get(name) or "", name, is_typed=True)
        if "data" in data:
            data = {**data, "data": inspection.value(data["data"], "data", is_typed=True)}
    else:
        data = inspection.value(data, "data")
    return replace(
        draft,
        content=inspection.value(draft.content, "content"),
        metadata=inspection.value(draft.metadata, "metadata"),
        data=data,
    )


def masked_in(entry: LogEntry, given: Draft) -> Iterator[content_policy.Finding]:
    """Yield what the content policy masked in a logged entry, which was given as this draft."""
    for field_ in ("content", "data", "metadata"):
        kinds = content_policy.find_masks(getattr(given, field_), getattr(entry, field_))
        yield from (content_policy.Finding(field_, kind) for kind in kinds)


def find_by_key(user: MemoryUser, keys: Iterable[str | None]) -> dict[str | None, LogEntry]:
    """Map those of these idempotency keys that were used before to their entries.

    An entry may have been cleared: the hash of its key remains, as long as SECRET_KEY does.
    """
    given = {key for key in keys if key is not None}
    if not given:
        return {}
    by_hash = {_hash_of_key(user, key): key for key in given}
    entries = LogEntry.objects.filter(
        Q(idempotency_key__in=given) | Q(key_hash__in=by_hash, redacted_at__isnull=False), user=user
    )
    return {
        entry.idempotency_key or by_hash[bytes(entry.key_hash or b"")]: entry for entry in entries
    }


def _hash_of_key(user: MemoryUser, key: str) -> bytes:
    return salted_hmac(f"memory.log.entry_log:{user.pk}", key, algorithm="sha256").digest()


def _store(
    cursor: CursorWrapper,
    user: MemoryUser,
    new: Sequence[LogEntry],
    *,
    log_bytes: int,
    now: datetime.datetime,
    given_time: datetime.datetime,
) -> None:
    """Append the entries to the log, and wake the workers that process them."""
    typed = any(entry.kind == EntryKind.RECORD for entry in new)
    cursor.execute(
        APPEND,
        {
            # Don't escape non-ASCII characters: PostgreSQL takes twice as long to read text with
            # many escapes.
            "entries": utf8_json([_row(entry) for entry in new]),
            "user": user.pk,
            "last_seq": new[-1].seq,
            "last_hash": bytes(new[-1].hash),
            "log_bytes": log_bytes,
            "given_time": given_time,
            "typed": typed,
            "before": new[0].seq - 1,
            "now": now,
        },
    )
    _announce(user, new)
    if typed:
        hint(
            "records",
            user.pk,
            workspace_pk=user.workspace_id,
            user_pk=user.pk,
        )


def _announce_messages(user: MemoryUser, new: Sequence[LogEntry], now: datetime.datetime) -> None:
    """Schedule language model work for the new entries that need it."""
    messages = [entry for entry in new if entry.kind in KINDS[LaneName.STRUCTURE]]
    if not messages:
        return
    urgent = any(batching.is_urgent(entry.metadata) for entry in messages)
    if batching.announce(user.pk, len(messages), first=now, last=now, urgent=urgent, now=now):
        hint("structure", user.pk, workspace_pk=user.workspace_id)


def _entry(
    user: MemoryUser,
    seq: int,
    previous: bytes,
    draft: Draft,
    *,
    source: str,
    now: datetime.datetime,
    given_time: datetime.datetime | None = None,
) -> tuple[LogEntry, int]:
    """Build entry number `seq`; `previous` is the hash of the entry before it.

    `given_time` is when an entry without a time of its own occurred; by default, now.
    Returns the entry and its size in bytes.
    """
    values = {
        "id": uuid.uuid4(),
        "user_id": user.pk,
        "seq": seq,
        "kind": draft.kind,
        "occurred_at": draft.occurred_at or given_time or now,
        "recorded_at": now,
        "derived_from": list(draft.derived_from),
        "trust": draft.trust or _TRUST_OF_ROLES.get((draft.role or "").lower(), Trust.USER),
        **{name: getattr(draft, name) for name in PAYLOAD_FIELDS},
        "source": source if draft.source is None else draft.source,
        "key_hash": _hash_of_key(user, draft.idempotency_key) if draft.idempotency_key else None,
        "salt": secrets.token_bytes(16),
    }
    # Build the instance as if read from the database; the constructor takes several times as long.
    entry = LogEntry.from_db(None, COLUMNS, [values.get(name) for name in COLUMNS])
    entry.user = user
    entry.outcome = None
    text = payload(entry)
    entry.payload_hash = _salted(entry, text)
    entry.hash = entry_hash(previous, entry)
    return entry, len(text)


def _row(entry: LogEntry) -> dict[str, Any]:
    """Return the entry in the form that APPEND expects; values without a JSON type become text."""
    return {
        name: _as_json(value) for name in COLUMNS if (value := getattr(entry, name)) is not None
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, dict):
        return exact_json(value)
    return str(value) if isinstance(value, uuid.UUID | datetime.datetime) else value


def says_the_same(entry: LogEntry, draft: Draft) -> bool:
    """Return whether a draft repeats this entry.

    A draft without a timestamp, or without a trust class, matches any.
    """
    same_time = draft.occurred_at is None or draft.occurred_at == entry.occurred_at
    names = [name for name in PAYLOAD_FIELDS if name != "source"]
    return (
        same_time
        and entry.kind == draft.kind
        and draft.trust in (None, entry.trust)
        and list(entry.derived_from) == list(draft.derived_from)
        and canonical_json([getattr(entry, name) for name in names])
        == canonical_json([getattr(draft, name) for name in names])
    )


def payload_hash(entry: LogEntry) -> bytes:
    """Return H(salt ‖ payload). Without the salt, a redacted payload could be guessed."""
    return _salted(entry, payload(entry))


def payload(entry: LogEntry) -> bytes:
    """Return the entry's payload, from which its payload hash is computed.

    Its length in bytes also serves as the entry's size. The person's own entries do not name their
    class, so the hashes of entries older than the column `trust` stay valid.
    """
    trust = {} if entry.trust == Trust.USER else {"trust": entry.trust}
    payload_fields = {name: getattr(entry, name) for name in PAYLOAD_FIELDS}
    return canonical_json({**payload_fields, **trust}).encode()


def _salted(entry: LogEntry, text: bytes) -> bytes:
    return hashlib.sha256(bytes(entry.salt or b"") + text).digest()


def entry_hash(previous: bytes, entry: LogEntry) -> bytes:
    """Return H(previous, seq, kind, timestamps, derived_from, payload hash): 32 bytes."""
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
    """Verify the user's whole log, and yield a description of each problem found.

    A redacted entry's payload is gone, but the entry's position in the chain is still checked.
    """
    previous = bytes(32)
    expected = 1
    for entry in LogEntry.objects.filter(user=user).order_by("seq").iterator(chunk_size=2000):
        if entry.seq != expected:
            yield f"entry {expected} is missing: the next one is {entry.seq}"
            expected = entry.seq
        if entry.redacted_at is None and payload_hash(entry) != bytes(entry.payload_hash):
            yield f"entry {entry.seq}: its content does not match its hash"
        if entry.redacted_at is not None and any(
            getattr(entry, name) is not None for name in (*PAYLOAD_FIELDS, "salt")
        ):
            yield f"entry {entry.seq}: it is redacted but still has content"
        if entry_hash(previous, entry) != bytes(entry.hash):
            yield f"entry {entry.seq}: its hash does not follow from the previous entry"
        previous = bytes(entry.hash)
        expected += 1
    if user.last_seq != expected - 1 or bytes(user.last_hash) != previous:
        yield (
            f"the log ends at entry {expected - 1}, but the user's row refers to entry"
            f" {user.last_seq} or a different hash"
        )


@dataclass(frozen=True)
class Coverage:
    """The number of log entries by outcome; the counts add up to `total`."""

    total: int
    pending: int
    covered: int
    dismissed: int
    rejected: int


def coverage(user: MemoryUser) -> Coverage:
    """Count the entries in the user's log by outcome, in one consistent snapshot."""
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


def stated_in(entry: LogEntry) -> int:
    """Return the entry's number or, for a correction, the number of the entry it corrects."""
    corrects = entry.kind == EntryKind.CORRECTION and entry.derived_from
    return entry.derived_from[0] if corrects else entry.seq


def corrections(
    user: MemoryUser, seqs: Collection[int], up_to: int | None = None, *, narrow: bool = False
) -> dict[int, LogEntry]:
    """Return the newest correction of each of these entries, keyed by the corrected entry's number.

    If `up_to` is given, corrections with higher numbers are ignored. Entries without a correction
    are left out. If `narrow` is set, the content of the corrections is not read.
    """
    rows = LogEntry.objects.filter(
        user=user, kind=EntryKind.CORRECTION, redacted_at=None, derived_from__0__in=seqs
    )
    if up_to is not None:
        rows = rows.filter(seq__lte=up_to)
    if narrow:
        rows = rows.only("kind", "seq", "derived_from")
    newest = rows.annotate(original=F("derived_from__0"))
    newest = newest.order_by("original", "-seq").distinct("original")
    return {stated_in(entry): entry for entry in newest}


def least_trusted(classes: Iterable[str]) -> Trust:
    """Return the class of what rests on entries of these classes; without any, the person's."""
    order = list(Trust)
    return max(map(Trust, classes), key=order.index, default=Trust.USER)


def classes_in(user: MemoryUser, seqs: Collection[int]) -> dict[int, Trust]:
    """Return the classes of those of these entries that are not the person's own."""
    others = LogEntry.objects.filter(user=user, seq__in=seqs).exclude(trust=Trust.USER)
    return {seq: Trust(trust) for seq, trust in others.values_list("seq", "trust")}


def classes_of(user: MemoryUser) -> str:
    """Return where the user's entries come from: the first letter of each one's class, in order."""
    letters = StringAgg(Left("trust", 1), "", order_by="seq")
    return LogEntry.objects.filter(user=user).aggregate(letters=letters)["letters"] or ""


def valid_until(entry: LogEntry) -> datetime.date | None:
    """Return the last day on which the entry says that it, or its record, holds; None if none."""
    data = entry.data or {}
    is_record = entry.kind == EntryKind.RECORD
    text = (data.get("data") or {}).get(LAPSES_AFTER) if is_record else data.get(VALID_UNTIL)
    with suppress(ValueError):
        return datetime.date.fromisoformat(text) if isinstance(text, str) else None
    return None


def record_entry(entry: LogEntry) -> RecordEntry:
    """Return a typed entry as input for the compiler."""
    statement = entry.data or {}
    return RecordEntry(
        seq=entry.seq,
        domain=statement.get("domain", DEFAULT_DOMAIN),
        type=statement["type"],
        key=statement.get("key"),
        collection=statement.get("collection"),
        data=statement.get("data", {}),
        retired=statement.get("retired", False),
        occurred_at=entry.occurred_at,
    )


def outcomes(user: MemoryUser, seqs: Iterable[int]) -> dict[int, EntryOutcome]:
    """Return the outcomes of these entries, keyed by their numbers; pending entries are left out.

    Only the version number of each checkpoint is loaded, because checkpoints are large and many
    entries share one.
    """
    decided = EntryOutcome.objects.filter(user=user, seq__in=list(seqs))
    return {
        outcome.seq: outcome
        for outcome in decided.select_related("checkpoint").only(
            "user",
            "seq",
            "outcome",
            "reason",
            "superseded_by",
            "set_aside",
            "decided_at",
            "checkpoint__version",
        )
    }


def read(user: MemoryUser, seqs: Sequence[int]) -> list[LogEntry]:
    """Return the entries with these numbers, in the given order."""
    entries = {entry.seq: entry for entry in LogEntry.objects.filter(user=user, seq__in=seqs)}
    return [entries[seq] for seq in seqs]


def all_decided(user: MemoryUser, seqs: Collection[int]) -> bool:
    """Return whether every one of these entries has an outcome."""
    return EntryOutcome.objects.filter(user=user, seq__in=seqs).count() == len(seqs)
