"""mem0's memories, as entries in our log.

A memory is a statement: a fact that a language model extracted or the product added, or a
correction that isn't linked to a particular entry. The memory's id is that entry's id. An update
appends a correction derived from the entry; the newest correction is in effect. A deletion redacts
the entry along with everything derived from it.
"""

import datetime
import hashlib
import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db import transaction
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.lookups import IsNull

from memory.kernel.admission import quotas
from memory.kernel.http.pagination import PAGE_BYTES
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.workspaces import reach
from memory.log import copies, entry_log
from memory.log.models.entries import STATEMENTS, EntryKind, EntryOutcome, LogEntry
from memory.privacy import redaction
from memory.recall.search.documents import CorpusName
from memory.recall.search.filters import Column, column
from memory.recall.search.finding import find
from memory.recall.search.followups import Question
from memory.recall.search.question_dates import relative_dates_of

ROW_BYTES = 500  # for each correction in a response, in addition to its text

REASON = "deleted through the mem0 API"

# A correction that isn't derived from an entry doesn't correct any particular memory.
_CORRECTS = Q(kind=EntryKind.CORRECTION, derived_from__len__gt=0)


def _no_correction(**fields: Any) -> IsNull:
    """Return the condition that no correction with these fields exists.

    This compiles to one index lookup per entry. With EXISTS, the planner would join the whole table
    with itself when it has few statistics on the table.
    """
    corrections = LogEntry.objects.filter(
        user=OuterRef("user"), kind=EntryKind.CORRECTION, redacted_at=None, **fields
    )
    return IsNull(Subquery(corrections.order_by().values("seq")[:1]), True)


# Matches entries that hold a memory's current text.
CURRENT = (
    Q(kind__in=STATEMENTS)
    & Q(_no_correction(derived_from__0=OuterRef("seq")))
    & (
        ~_CORRECTS
        | Q(_no_correction(derived_from__0=OuterRef("derived_from__0"), seq__gt=OuterRef("seq")))
    )
)
# Matches messages that no language model has dealt with. They are no memories yet.
PENDING = Q(kind=EntryKind.MESSAGE) & Q(
    IsNull(
        Subquery(
            EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq")).values("seq")[
                :1
            ]
        ),
        True,
    )
)
_STATED_AT = """coalesce((
    SELECT original.occurred_at FROM memory_logentry AS original
    WHERE "memory_logentry"."kind" = 'correction' AND original.user_id = "memory_logentry"."user_id"
        AND original.seq = "memory_logentry"."derived_from"[1]
), "memory_logentry"."occurred_at")"""

_USER_ID = """(
    SELECT person.user_id FROM memory_memoryuser AS person
    WHERE person.id = "memory_logentry"."user_id"
)"""

# mem0's filter keys, other than the metadata.
FILTERED: Mapping[str, Column] = {
    "user_id": Column(_USER_ID, "text"),
    "agent_id": column("agent_id"),
    "run_id": column("session_id"),
    "created_at": Column(_STATED_AT, "time"),
    "timestamp": Column(_STATED_AT, "time"),
    "updated_at": column("recorded_at", "time"),
    "memory": column("content"),
    "keywords": column("content"),
}
# The fields of a memory in a response.
FIELDS = (
    *("id", "memory", "user_id", "agent_id", "app_id", "run_id", "hash", "metadata"),
    *("categories", "created_at", "updated_at"),
)
# There is no app column: the app's id is stored in the metadata.
APP = "app_id"
# An agent, a run or an app that learns something without a user is a user of its own, whose id
# begins with its kind: `agent:clerk`.
KINDS: Mapping[str, str] = {"agent_id": "agent", "run_id": "run", APP: "app"}


def owner(entity: str, name: str) -> str:
    """Return the id of the user that has the memories of, for example, an `agent_id` alone."""
    return name if entity == "user_id" else f"{KINDS[entity]}:{name}"


def entity_of(user_id: str) -> tuple[str, str]:
    """Return mem0's type and name of the entity that is this user."""
    kind, _, name = user_id.partition(":")
    return (kind, name) if name and kind in KINDS.values() else ("user", user_id)


# A user, and the condition on their memories, if there is one.
Selection: TypeAlias = tuple[MemoryUser, RawSQL | None]


class UnknownMemory(Exception):
    """The workspace has no memory with this id, or it has been deleted."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"There is no memory {memory_id[:100]!r} in this workspace, or it was deleted."
        )


class TooLarge(Exception):
    """The response would be too large; the message says what to request instead."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(
            f"{what} more than {PAGE_BYTES // 2**20} MiB of text and metadata: {instead}."
        )


@dataclass(frozen=True)
class Memory:
    """A memory: the entry that created it, and the entry that holds its current text."""

    original: LogEntry
    now: LogEntry

    def to_json(self) -> dict[str, Any]:
        """Return the memory in mem0's form."""
        metadata, app = _split_app(self.now.metadata)
        text = self.now.content or ""
        ids = {"agent_id": self.now.agent_id, "run_id": self.now.session_id, APP: app}
        owned = self.original.user.user_id in {
            owner(key, str(name)) for key, name in ids.items() if name
        }
        return {
            "id": str(self.original.pk),
            "memory": text,
            "user_id": None if owned else self.original.user.user_id,
            **ids,
            "hash": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
            "metadata": metadata,
            "categories": None,
            "created_at": self.original.occurred_at.isoformat(),
            "updated_at": self.now.recorded_at.isoformat(),
            **({"status": "PENDING"} if self.original.kind == EntryKind.MESSAGE else {}),
        }

    def as_added(self) -> dict[str, Any]:
        """Return a new memory in the form of an addition's results."""
        text = self.now.content
        return {
            "id": str(self.original.pk),
            "event": "ADD",
            "memory": text,
            "data": {"memory": text},
        }


@dataclass(frozen=True)
class Change:
    """A change to a memory; None leaves a field unchanged."""

    memory_id: str
    text: str | None = None
    metadata: dict[str, Any] | None = None


def refuse_others(key: ApiKey, memory_id: str) -> None:
    """Raise UnknownMemory if the memory belongs to a user the key may not access."""
    if key.user_pks is None:
        return
    with suppress(ValueError):  # invalid ids are reported later
        entries = LogEntry.objects.filter(reach(key, "user"), pk=uuid.UUID(memory_id))
        if not entries.exists():
            raise UnknownMemory(memory_id)


def count(selections: Sequence[Selection]) -> int:
    """Count the memories of these users, or only those whose current state matches."""
    return sum(
        (_find_originals(user) if where is None else _fitting(user, where)).count()
        for user, where in selections
    )


def page(selections: Sequence[Selection], start: int, end: int) -> list[Memory]:
    """Return the (matching) memories of these users from `start` to `end`, newest first.

    Memories are matched by their current state. Raises TooLarge if the memories' texts don't fit in
    a page.
    """
    if len(selections) == 1:
        [(user, where)] = selections
        chosen = [(user, seq) for seq, _ in _newest(user, where, start, end)]
    else:
        dated = [
            (recorded_at, user.pk, -position, user, seq)
            for user, where in selections
            for position, (seq, recorded_at) in enumerate(_newest(user, where, 0, end, dated=True))
        ]
        dated.sort(key=lambda row: row[:3], reverse=True)
        chosen = [(user, seq) for *_, user, seq in dated[start:end]]
    of_user: dict[MemoryUser, list[int]] = {}
    for user, seq in chosen:
        of_user.setdefault(user, []).append(seq)
    sizes = [size for one in of_user.items() for size in _sizes(*one).values()]
    if sum(sizes) > PAGE_BYTES:
        number = max(1, PAGE_BYTES // max(sizes))
        raise TooLarge("These memories have", f"send a page_size of {number}")
    read = {
        (user.pk, memory.now.seq): memory
        for user, seqs in of_user.items()
        for memory in read_current(user, seqs)
    }
    return [read[key] for user, seq in chosen if (key := (user.pk, seq)) in read]


def _newest(
    user: MemoryUser, where: RawSQL | None, start: int, end: int, *, dated: bool = False
) -> list[tuple[int, datetime.datetime | None]]:
    """Return the entries with the current texts of a user's newest memories.

    If `dated`, each comes with the time at which its memory was recorded.
    """
    if where is None:
        seqs = list(_find_originals(user).order_by("-seq").values_list("seq", flat=True)[start:end])
        newest = entry_log.corrections(user, seqs, narrow=True)
        now = [newest[seq].seq if seq in newest else seq for seq in seqs]
    else:
        first = Case(
            When(_CORRECTS, then=F("derived_from__0")),
            default=F("seq"),
            output_field=BigIntegerField(),
        )
        fitting = _fitting(user, where).annotate(first=first).order_by("-first")
        pairs = list(fitting.values_list("seq", "first")[start:end])
        now, seqs = [seq for seq, _ in pairs], [seq for _, seq in pairs]
    entries = LogEntry.objects.filter(user=user, seq__in=seqs).order_by()
    times = dict(entries.values_list("seq", "recorded_at")) if dated else {}
    return [(seq, times.get(first)) for seq, first in zip(now, seqs, strict=True)]


def _has_pending(user: MemoryUser) -> bool:
    """Return whether messages of the user wait for a language model."""
    cursor = Lane.objects.filter(user=user, name=LaneName.STRUCTURE).values("cursor_seq")
    messages = LogEntry.objects.filter(PENDING, user=user, redacted_at=None)
    return messages.filter(seq__gt=Subquery(cursor[:1])).exists()


def _sizes(user: MemoryUser, seqs: Collection[int]) -> dict[int, int]:
    """Return the size of each entry in bytes, or {} if the whole log fits in a page."""
    if user.log_bytes <= PAGE_BYTES:
        return {}
    entries = LogEntry.objects.filter(user=user, seq__in=seqs).order_by()
    return dict(entries.annotate(bytes=entry_log.BYTES).values_list("seq", "bytes"))


def _find_originals(user: MemoryUser) -> QuerySet[LogEntry]:
    """Select the entries that created the user's memories."""
    return LogEntry.objects.filter(
        ~_CORRECTS, user=user, kind__in=STATEMENTS, redacted_at=None
    ).order_by()


def _fitting(user: MemoryUser, where: RawSQL) -> QuerySet[LogEntry]:
    """Select the entries that hold the current text of matching memories."""
    return LogEntry.objects.filter(CURRENT, Q(where), user=user, redacted_at=None).order_by()


def read_current(user: MemoryUser, seqs: Sequence[int]) -> list[Memory]:
    """Return the memories whose current text is in these entries, in the same order."""
    read = LogEntry.objects.filter(user=user, seq__in=seqs).order_by()
    now = {entry.seq: entry for entry in read}
    elsewhere = {entry_log.stated_in(entry) for entry in now.values()} - now.keys()
    # The first text of a corrected memory is no longer shown.
    first = LogEntry.objects.filter(user=user, seq__in=elsewhere).order_by()
    originals = now | {entry.seq: entry for entry in first.defer("content", "data", "metadata")}
    for entry in originals.values():
        entry.user = user
    memories = [
        Memory(originals[entry_log.stated_in(now[seq])], now[seq]) for seq in seqs if seq in now
    ]
    return [memory for memory in memories if memory.now.redacted_at is None]


def read_created(user: MemoryUser, originals: Sequence[LogEntry]) -> list[Memory]:
    """Return the memories that these entries created, leaving out those that were deleted."""
    newest = entry_log.corrections(user, [entry.seq for entry in originals])
    for entry in originals:
        entry.user = user
    return [
        Memory(entry, newest.get(entry.seq, entry))
        for entry in originals
        if entry.redacted_at is None
    ]


def one(workspace: Workspace, memory_id: str) -> Memory:
    """Return a memory with its current text; raises UnknownMemory if it doesn't exist."""
    original = _find(workspace, memory_id)
    if original.redacted_at is not None:
        raise UnknownMemory(memory_id)
    return _read_memory(original)


def search(
    selections: Sequence[Selection], query: str, *, top_k: int, threshold: float | None
) -> list[tuple[Memory, float]]:
    """Return the memories of these users that best match a query, with their scores, best first.

    Messages that wait for a language model are found, too. A threshold of 0 asks for everything:
    the newest memories fill up what the matching ones leave of `top_k`. Returns only as many as fit
    in a page, but at least one if any memory matches.
    """
    results = [
        pair
        for user, where in selections
        for pair in _search(user, query, where, top_k, threshold or 0.0)
    ]
    results.sort(key=lambda pair: -pair[1])  # keeps the order of equal scores
    results = results[:top_k]
    if threshold == 0 and len(results) < top_k:
        pks = {memory.original.pk for memory, _ in results}
        others = [one for one in page(selections, 0, top_k) if one.original.pk not in pks]
        results += [(memory, 0.0) for memory in others[: top_k - len(results)]]
    return results


def _search(
    user: MemoryUser, query: str, where: RawSQL | None, top_k: int, threshold: float
) -> list[tuple[Memory, float]]:
    pending = _has_pending(user)
    wanted = CURRENT | PENDING if pending else CURRENT
    results = find(
        user,
        Question(query, dates=relative_dates_of(query, user)),
        corpora=list(CorpusName) if pending else [CorpusName.FACTS],
        top_k=top_k,
        where=wanted if where is None else wanted & Q(where),
        threshold=threshold,
    )
    # Search hits have only the columns that a search needs, so reread the memories.
    scores = {hit.entry.seq: hit.score for hit in results.hits}
    sizes = _sizes(user, scores)
    so_far = itertools.accumulate(sizes.get(seq, 0) for seq in scores)
    fitting = [seq for seq, size in zip(scores, so_far, strict=True) if size <= PAGE_BYTES]
    found_memories = read_current(user, fitting or list(scores)[:1])
    return [(memory, scores[memory.now.seq]) for memory in found_memories]


def update(workspace: Workspace, change: Change, *, by: str) -> Memory:
    """Append a correction if the memory changes; raises UnknownMemory if it does not exist."""
    with transaction.atomic():
        original = _lock(workspace, change.memory_id)
        memory = _read_memory(original)
        draft = _correction(memory, change)
        if draft is None:
            return memory
        quotas.check_entries(workspace, original.user, 1)
        policy = workspace.content_policy
        (now,) = entry_log.append(original.user, [draft], source=by, policy=policy)
        return Memory(original, now)


def delete(workspace: Workspace, memory_id: str, *, by: str) -> None:
    """Redact the memory and everything derived from it.

    Raises UnknownMemory if it does not exist.
    """
    with transaction.atomic():
        original = _lock(workspace, memory_id)
        redaction.redact(original.user, [original.seq], by=by, reason=REASON)


def delete_all(selections: Sequence[Selection], *, by: str) -> int:
    """Redact all memories of these users, or those that match; return how many there were."""
    deleted = 0
    with transaction.atomic():
        copies.lock_families([user.pk for user, _ in selections])
        for user, where in selections:
            originals = _find_originals(user) if where is None else _fitting(user, where)
            seqs = sorted(
                entry_log.stated_in(entry)
                for entry in originals.only("kind", "seq", "derived_from")
            )
            if seqs:
                redaction.redact(user, seqs, by=by, reason=REASON)
            deleted += len(seqs)
    return deleted


def history(workspace: Workspace, memory_id: str) -> list[dict[str, Any]]:
    """Return a memory's history, oldest first, in mem0's form.

    For a deleted memory, the history has the time of the deletion but no text. Raises UnknownMemory
    if the memory never existed, and TooLarge if its texts don't fit in a page.
    """
    original = _find(workspace, memory_id)
    corrections = _corrections(original).order_by().annotate(bytes=entry_log.BYTES + ROW_BYTES)
    # Each text appears twice: as the new text, and as the next change's old text.
    if 2 * (corrections.aggregate(Sum("bytes"))["bytes__sum"] or 0) > PAGE_BYTES:
        instead = "read its corrections with GET /v1/users/{user_id}/entries/"
        raise TooLarge("The history of this memory has", instead)
    events = []
    before: LogEntry | None = None
    heard = _heard(original)
    for entry in [original, *_corrections(original).order_by("seq")]:
        metadata, _ = _split_app(entry.metadata)
        events.append(
            {
                "id": str(entry.pk),
                "memory_id": str(original.pk),
                "event": "UPDATE" if before else "ADD",
                "input": heard if before is None else _make_messages([entry]),
                "old_memory": before.content if before else None,
                "new_memory": entry.content,
                "user_id": original.user.user_id,
                "metadata": metadata,
                "created_at": original.occurred_at.isoformat(),
                "updated_at": entry.recorded_at.isoformat(),
            }
        )
        before = entry
    if original.redacted_at is not None:
        events.append(
            {
                **events[-1],
                "id": str(uuid.uuid5(original.pk, "DELETE")),
                "event": "DELETE",
                "input": [],
                "old_memory": None,
                "updated_at": original.redacted_at.isoformat(),
            }
        )
    return events


def counts(users: Iterable[MemoryUser]) -> dict[int, int]:
    """Return the number of memories per user, keyed by the user's primary key."""
    statements = LogEntry.objects.filter(
        ~_CORRECTS, user__in=list(users), kind__in=STATEMENTS, redacted_at=None
    )
    counted = statements.order_by().values("user_id").annotate(number=Count("pk"))
    return {row["user_id"]: row["number"] for row in counted}


def metadata_with(metadata: Mapping[str, Any] | None, app: str | None) -> dict[str, Any] | None:
    """Return an entry's metadata: the caller's own plus the app's id."""
    return {**(metadata or {}), **({} if app is None else {APP: app})} or None


def _split_app(metadata: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, Any]:
    own = dict(metadata or {})
    app = own.pop(APP, None)
    return own or None, app


def _find(workspace: Workspace, memory_id: str) -> LogEntry:
    """Return the entry that created a memory, without its text; it may have been redacted.

    Raises UnknownMemory if there is no such entry.
    """
    try:
        key = uuid.UUID(memory_id)
    except ValueError:
        raise UnknownMemory(memory_id) from None
    rows = LogEntry.objects.filter(
        ~_CORRECTS,
        pk=key,
        user__workspace=workspace,
        user__erased_at=None,
        kind__in=STATEMENTS,
    )
    entry = rows.defer("content", "data", "metadata").select_related("user__workspace").first()
    if entry is None:
        raise UnknownMemory(memory_id)
    return entry


def _lock(workspace: Workspace, memory_id: str) -> LogEntry:
    """Lock the memory's user and all users linked to it by merges; return the memory's entry.

    A redaction locks the same users. Locking just one of them first could deadlock with a
    transaction that locks all of them. Raises UnknownMemory if the memory does not exist.
    """
    try:
        copies.lock_families([_find(workspace, memory_id).user_id])
    except MemoryUser.DoesNotExist:
        raise UnknownMemory(memory_id) from None
    original = _find(workspace, memory_id)
    if original.redacted_at is not None:
        raise UnknownMemory(memory_id)
    return original


def _corrections(original: LogEntry) -> QuerySet[LogEntry]:
    """Select a memory's corrections, including redacted ones."""
    return LogEntry.objects.filter(
        user=original.user_id, kind=EntryKind.CORRECTION, derived_from__0=original.seq
    )


def _read_memory(original: LogEntry) -> Memory:
    newest = _corrections(original).filter(redacted_at=None).order_by("-seq").first()
    now = newest or LogEntry.objects.get(pk=original.pk)
    now.user = original.user
    return Memory(original, now)


def _correction(memory: Memory, change: Change) -> entry_log.Draft | None:
    """Return the correction that makes this change to a memory, or None if it changes nothing."""
    now = memory.now
    own, app = _split_app(now.metadata)
    text = now.content if change.text is None else change.text
    metadata = own if change.metadata is None else change.metadata
    if (text, metadata or None) == (now.content, own):
        return None
    return entry_log.Draft(
        kind=EntryKind.CORRECTION,
        content=text,
        metadata=metadata_with(metadata, app),
        session_id=now.session_id,
        role=now.role,
        speaker=now.speaker,
        agent_id=now.agent_id,
        derived_from=[memory.original.seq],
    )


def _heard(original: LogEntry) -> list[dict[str, Any]]:
    """Return the messages that a memory was derived from; if there are none, the memory."""
    sources = LogEntry.objects.filter(
        user=original.user_id, seq__in=original.derived_from, redacted_at=None
    ).order_by("seq")
    return _make_messages(list(sources) if original.derived_from else [original])


def _make_messages(entries: Iterable[LogEntry]) -> list[dict[str, Any]]:
    return [
        {"role": entry.role or "user", "content": entry.content}
        for entry in entries
        if entry.redacted_at is None
    ]
