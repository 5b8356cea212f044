"""Redaction of single entries: what was said is taken out of the memory, and what rests on it.

In one transaction the entries lose their content, with all entries that were derived from them, and
the log gains an entry that says so. From then on the user's newest version is not told, since it
may hold what was redacted, and whoever works with what was read before loses his claim. A worker
makes the version without it (`workers/checkpointing/redactions.py`) and, in the transaction in
which that becomes the newest, all copies go that were made on the way
(`memory.privacy.forgetting`).
"""

import datetime
from collections.abc import Collection, Iterable

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest
from django.utils import timezone

from memory import copies, log
from memory.models import Checkpoint, EntryOutcome, LogEntry, MemoryUser, Redaction, Run
from memory.models.log import EntryKind, Outcome
from memory.models.runs import RunKind, RunTrigger
from memory.work import lanes, runs
from memory.work.hints import hint

TASK = "workers.tasks.redact"
# What became of a redacted entry.
REASON = "redacted"
# What stands where something was redacted that has to say something.
TOLD = "(redacted)"
# Their input was written by somebody who may have read any entry.
AUTHORED = (RunKind.ASK, RunKind.FOLLOW_UP, RunKind.PROPOSAL, RunKind.IMPORT)


class RedactionRefused(ValueError):
    """The entries cannot be redacted; the message says which, and why."""


class UnknownEntries(RedactionRefused):
    """The log has no such entries."""


def redact(user: MemoryUser, seqs: Iterable[int], *, by: str, reason: str) -> LogEntry:
    """Redact these entries of the user's log, and all that were derived from them; so, too, where
    they are in the log of a user who was merged, as copies or as originals.

    Returns the entry of the log that says so; of what was redacted already, the earlier one. `by`
    says who wants it (`key:…`, `staff:…`), `reason` why: both stay. Raises UnknownEntries, and
    RedactionRefused for an entry that tells of a redaction itself, or where no entry is named.
    """
    asked = sorted(set(seqs))
    if not asked:
        raise RedactionRefused("Name at least one entry.")
    with transaction.atomic():
        rows = copies.lock_families([user.pk])
        locked = rows[user.pk]
        known = {entry.seq: entry for entry in _short(locked).filter(seq__in=asked)}
        if missing := [seq for seq in asked if seq not in known]:
            raise UnknownEntries(
                f"The log has no entry {missing[0]}: it has 1 to {locked.last_seq}."
                if locked.last_seq
                else f"The log has no entry {missing[0]}: it is empty."
            )
        for entry in known.values():
            if entry.kind == EntryKind.REDACTION:
                raise RedactionRefused(
                    f"Entry {entry.seq} tells of a redaction, which stays on record."
                )
        found = copies.everywhere(locked, asked, lambda pk, some: set(closure(rows[pk], some)))
        whole = sorted(found.pop(locked.pk))
        for pk, others in found.items():
            _redact_copies(rows[pk], others, by=by, reason=reason)
        new = _not_named(locked, whole)
        if not new:
            told = Redaction.objects.filter(user=locked, entries__overlap=whole)
            return LogEntry.objects.get(user=locked, seq=told.latest("seq").seq)
        return _redact(locked, asked, new, by=by, reason=reason)


def _redact_copies(user: MemoryUser, seqs: Collection[int], *, by: str, reason: str) -> None:
    """Redact the same entries of somebody who is the same person: see `memory.merging`."""
    if new := _not_named(user, seqs):
        _redact(user, new, new, by=by, reason=reason)


def _not_named(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Return those of the entries that no redaction names; of some retention has kept no words, and
    what was made of these is there."""
    told = Redaction.objects.filter(user=user, entries__overlap=list(seqs))
    named = {seq for entries in told.values_list("entries", flat=True) for seq in entries}
    return sorted(set(seqs) - named)


def _redact(
    user: MemoryUser, asked: Collection[int], seqs: Collection[int], *, by: str, reason: str
) -> LogEntry:
    """Do it, under the lock of the user's row."""
    now = timezone.now()
    told = LogEntry.objects.filter(user=user, seq__in=seqs, redacted_at=None)
    freed = sum(len(log.payload(entry)) for entry in told.iterator(chunk_size=100))
    MemoryUser.objects.filter(pk=user.pk).update(log_bytes=F("log_bytes") - freed)
    told.update(
        **dict.fromkeys((*log.PAYLOAD_FIELDS, "salt")), redacted_at=Greatest(now, F("recorded_at"))
    )
    draft = log.Draft(
        kind=EntryKind.REDACTION,
        data={"entries": list(seqs), "asked": list(asked), "by": by, "reason": reason},
    )
    (entry,) = log.append(user, [draft], source=by)
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
        asked=list(asked),
        entries=list(seqs),
        by=by,
        reason=reason,
        created_at=now,
        due_at=now,
        hinted_at=now,
    )
    hint(TASK, user.pk, workspace_pk=user.workspace_id, user_pk=user.pk)
    return entry


def closure(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Return these entries and all that were derived from them, directly or not, ascending."""
    found, newest = set(seqs), set(seqs)
    while newest:
        derived = LogEntry.objects.filter(
            user=user, seq__gt=min(newest), derived_from__overlap=sorted(newest)
        )
        newest = set(derived.values_list("seq", flat=True)) - found
        found |= newest
    return sorted(found)


def waiting() -> QuerySet[Redaction]:
    """Return the redactions of which not everything is gone yet."""
    return Redaction.objects.filter(due_at__isnull=False)


def under_way(user: MemoryUser) -> list[int]:
    """Return the entries of which something may be left, ascending."""
    rows = waiting().filter(user=user).values_list("entries", flat=True)
    return sorted({seq for entries in rows for seq in entries})


def redacted_among(user: MemoryUser, seqs: Collection[int]) -> list[int]:
    """Return which of these entries were redacted, ascending."""
    numbers = {seq for seq in seqs if abs(seq) < 2**63}  # somebody may cite what no log can hold
    return sorted(numbers - set(_not_named(user, numbers)))


def moments(user_pk: int) -> list[tuple[int, datetime.datetime]]:
    """Return which entries were redacted, and when: not those of which retention keeps no words."""
    told = Redaction.objects.filter(user=user_pk).values_list("entries", "created_at")
    return [(seq, at) for entries, at in told for seq in entries]


def first_since(
    checkpoint: Checkpoint, redacted: Iterable[tuple[int, datetime.datetime]]
) -> int | None:
    """Return the first entry on which a version rests that was redacted since, of these `moments`;
    None if there is none."""
    seen, since = checkpoint.seen_seq, checkpoint.created_at
    return min((seq for seq, at in redacted if seq <= seen and at > since), default=None)


def _short(user: MemoryUser) -> QuerySet[LogEntry]:
    return LogEntry.objects.filter(user=user).only("user_id", "seq", "kind", "redacted_at")


def _settle(user: MemoryUser, seqs: Collection[int], at: datetime.datetime) -> None:
    """Nothing is left to be done about these entries; versions that took them in stay named."""
    EntryOutcome.objects.filter(user=user, seq__in=seqs).update(
        outcome=Outcome.DISMISSED, reason=REASON
    )
    decided = set(
        EntryOutcome.objects.filter(user=user, seq__in=seqs).values_list("seq", flat=True)
    )
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
    """Take the work from whoever may have read one of the entries, of which the oldest is `first`.

    Lanes are worked on again. Of runs, what they were given may quote the entry, or the version
    that they read: whoever waits for one is told to ask again.
    """
    lanes.interrupt(user.pk)
    lanes.recount(user.pk)
    runs.close(
        Run.objects.filter(user=user).filter(
            Q(kind__in=AUTHORED) | Q(trigger=RunTrigger.STAFF) | Q(checkpoint__seen_seq__gte=first)
        ),
        "Something was redacted of this user's memory meanwhile: ask again.",
    )
