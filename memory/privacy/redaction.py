"""Redacting entries: removing their content and everything based on it.

In one transaction, the content of the entries and of all entries derived from them is cleared, and
an entry recording the redaction is appended to the log. From then on, the user's newest version is
withheld, since it may contain redacted content, and workers that may have read that content lose
their claims. A worker then creates a version without the content
(`workers/commits/redactions.py`) and, in the transaction that makes this version the newest,
removes all derived copies (`memory.privacy.forgetting`).
"""

import datetime
from collections.abc import Collection, Iterable
from itertools import chain

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.kernel.work.hints import hint
from memory.log import copies, documents, entry_log, lanes
from memory.log.models.documents import Document
from memory.log.models.entries import PAYLOAD_FIELDS, EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger
from memory.versions.redactions import _not_named

# The reason stored in redacted entries' outcomes.
REASON = "redacted"
# Kinds of runs whose input was written by somebody who may have read any of the entries.
AUTHORED = (RunKind.ASK, RunKind.PROPOSAL, RunKind.IMPORT)


class RedactionRefused(Refused):
    """An entry can't be redacted; the message says which one and why."""


class UnknownEntries(RedactionRefused):
    """An entry to be redacted is not in the log."""

    status = 404


def redact(user: MemoryUser, seqs: Iterable[int], *, by: str, reason: str) -> LogEntry:
    """Redact these entries in the user's log, along with all entries derived from them.

    Copies and originals of these entries in merged users' logs are redacted, too. Returns the log
    entry that records the redaction; if all of the entries had already been redacted, returns the
    log entry of the latest of those redactions. `by` names the requester (`key:…`, `staff:…`) and
    `reason` says why; both stay on record. Raises UnknownEntries if one of the entries is not in
    the log, and RedactionRefused if one of them itself records a redaction, or if `seqs` is empty.
    """
    requested = sorted(set(seqs))
    with transaction.atomic():
        rows = copies.lock_families([user.pk])
        by_user = find_affected(rows[user.pk], requested)
        new = by_user.pop(user.pk)
        for pk, also in by_user.items():
            if also:
                _redact(rows[pk], also, also, by=by, reason=reason)
        if not new:
            redactions = Redaction.objects.filter(user=user, entries__overlap=requested)
            return LogEntry.objects.get(user=user, seq=redactions.latest("seq").seq)
        return _redact(rows[user.pk], requested, new, by=by, reason=reason)


def redact_document(document: Document, *, by: str, reason: str) -> LogEntry | None:
    """Redact a document: its file, its text and everything derived from it.

    Returns the log entry that records the redaction; None if nothing of the document was in the
    log, so that only its row had to go. Its conversion, if that is under way, is abandoned.
    """
    with transaction.atomic():
        copies.lock_families([document.user_id])
        row = Document.objects.filter(pk=document.pk).first()
        if row is None or row.first_seq is None or row.last_seq is None:
            documents.forget(document)
            return None
        return redact(document.user, range(row.first_seq, row.last_seq + 1), by=by, reason=reason)


def find_affected(user: MemoryUser, seqs: Collection[int]) -> dict[int, list[int]]:
    """Return the entries that a redaction of these would clear, by their user's primary key.

    These are the entries themselves, all entries derived from them, and the copies and originals
    of all those in merged users' logs (`memory.integrations.merging`), except entries redacted
    before. Raises UnknownEntries and RedactionRefused, as `redact` does.
    """
    if not seqs:
        raise RedactionRefused("Name at least one entry.")
    kinds = dict(LogEntry.objects.filter(user=user, seq__in=seqs).values_list("seq", "kind"))
    if missing := sorted(set(seqs) - kinds.keys()):
        raise UnknownEntries(
            f"The log has no entry {missing[0]}: its last entry is {user.last_seq}."
            if user.last_seq
            else f"The log has no entry {missing[0]}: it is empty."
        )
    for seq, kind in kinds.items():
        if kind == EntryKind.REDACTION:
            raise RedactionRefused(
                f"Entry {seq} records a redaction and cannot itself be redacted."
            )
    by_user = copies.everywhere(user, seqs, closure)
    return {pk: _not_named(pk, some) for pk, some in by_user.items()}


def _redact(
    user: MemoryUser, requested: Collection[int], seqs: Collection[int], *, by: str, reason: str
) -> LogEntry:
    """Redact the entries; the caller has locked the user's row."""
    now = timezone.now()
    rows = LogEntry.objects.filter(user=user, seq__in=seqs, redacted_at=None)
    clear_content(user.pk, rows, now)
    draft = entry_log.Draft(
        kind=EntryKind.REDACTION,
        data={"entries": list(seqs), "asked": list(requested), "by": by, "reason": reason},
    )
    (entry,) = entry_log.append(user, [draft], source=by)
    _settle(user, seqs, entry.recorded_at)
    EntryOutcome.objects.create(
        user=user,
        seq=entry.seq,
        outcome=Outcome.COVERED,
        checkpoint=user.head,
        decided_at=entry.recorded_at,
    )
    _interrupt(user, min(seqs))
    head = user.head
    holds = head is not None and head.seen_seq >= min(seqs)
    if holds:
        MemoryUser.objects.filter(pk=user.pk, redacting_since=None).update(redacting_since=now)
    Redaction.objects.create(
        user=user,
        seq=entry.seq,
        asked=list(requested),
        entries=list(seqs),
        by=by,
        reason=reason,
        created_at=now,
        due_at=now,
        hinted_at=now,
    )
    hint("redactions", user.pk, workspace_pk=user.workspace_id, user_pk=user.pk)
    return entry


def clear_content(user_pk: int, entries: QuerySet[LogEntry], now: datetime.datetime) -> int:
    """Clear these entries of a user, whose row is locked; return how many were cleared.

    Files of documents with their text are removed.
    """
    sizes = {one.seq: len(entry_log.payload(one)) for one in entries.iterator(chunk_size=100)}
    MemoryUser.objects.filter(pk=user_pk).update(log_bytes=F("log_bytes") - sum(sizes.values()))
    number = entries.update(
        **dict.fromkeys((*PAYLOAD_FIELDS, "salt")),
        redacted_at=Greatest(now, F("recorded_at")),
    )
    documents.remove_files(user_pk, sizes.keys())
    return number


def closure(user_pk: int, seqs: Collection[int]) -> set[int]:
    """Return the numbers of these entries and of all entries derived from them."""
    reached, newest = set(seqs), set(seqs)
    while newest:
        derived = LogEntry.objects.filter(
            user=user_pk, seq__gt=min(newest), derived_from__overlap=sorted(newest)
        )
        newest = set(derived.values_list("seq", flat=True)) - reached
        reached |= newest
    return reached


def find_sources(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Return the numbers of the other entries that these were derived from, in ascending order.

    They may say the same, and a redaction of these leaves them.
    """
    reached, newest = set(seqs), set(seqs)
    while newest:
        rows = LogEntry.objects.filter(user=user, seq__in=newest)
        newest = set(chain(*rows.values_list("derived_from", flat=True))) - reached
        reached |= newest
    rows = LogEntry.objects.filter(user=user, seq__in=reached - set(seqs), redacted_at=None)
    return sorted(rows.values_list("seq", flat=True))


def waiting() -> QuerySet[Redaction]:
    """Select the redactions that are not complete yet."""
    return Redaction.objects.filter(due_at__isnull=False)


def under_way(user: MemoryUser) -> list[int]:
    """Return the numbers of entries in incomplete redactions, in ascending order."""
    rows = waiting().filter(user=user).values_list("entries", flat=True)
    return sorted({seq for entries in rows for seq in entries})


def _settle(user: MemoryUser, seqs: Collection[int], at: datetime.datetime) -> None:
    """Dismiss these entries; their outcomes still refer to the versions that settled them."""
    outcomes = EntryOutcome.objects.filter(user=user, seq__in=seqs)
    outcomes.update(outcome=Outcome.DISMISSED, reason=REASON, set_aside=[])
    decided = set(outcomes.values_list("seq", flat=True))
    EntryOutcome.objects.bulk_create(
        EntryOutcome(
            user=user,
            seq=seq,
            outcome=Outcome.DISMISSED,
            reason=REASON,
            checkpoint=user.head,
            decided_at=at,
        )
        for seq in seqs
        if seq not in decided
    )


def _interrupt(user: MemoryUser, first: int) -> None:
    """Take work away from workers that may have read the redacted entries.

    `first` is the number of the first redacted entry. Work on the lanes starts over. Runs are
    closed if their input may quote one of the entries or their version may contain data from one;
    whoever is waiting for one of these runs is told to try again.
    """
    lanes.interrupt(user.pk)
    lanes.recount(user.pk)
    runs.close(
        Run.objects.filter(user=user).filter(
            Q(kind__in=AUTHORED) | Q(trigger=RunTrigger.STAFF) | Q(checkpoint__seen_seq__gte=first)
        ),
        "Content in this user's memory was redacted in the meantime. Try again.",
    )
