"""Merging an anonymous user into a known user who turned out to be the same person.

One transaction closes the anonymous user: the log accepts no more entries, work for the user stops,
and open alerts are resolved. A worker then copies the entries to the end of the other user's log in
batches. Each batch is written in the same transaction as the position to continue from, so every
entry is copied exactly once, even if a process is killed. The anonymous user's log itself does not
change. `memory.log.copies` maps entries to their copies.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from memory.alerts import handover
from memory.constraints import forecasts
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.users import final
from memory.kernel.work import leases
from memory.kernel.work.hints import hint
from memory.log import copies, entry_log, lanes
from memory.log.models.entries import (
    PAYLOAD_FIELDS,
    EntryKind,
    EntryOutcome,
    LogEntry,
    Outcome,
    Trust,
)
from memory.log.models.merges import CopiedEntries, Merge
from memory.privacy import redaction
from memory.project.names import key_of_entry, snake
from memory.project.paths import constraint_path
from memory.versions import redactions, runs
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run
from memory.versions.past_states import BeingRedacted, refuse_being_redacted

logger = structlog.get_logger(__name__)

# Limits on a batch's size: all other appends to the log wait while a batch is copied.
BATCH = 200
BATCH_CHARACTERS = 1_000_000
# Number of batches to copy before other work gets its turn, so that a user with a million entries
# doesn't block a thread.
MAX_BATCHES = 25
# Matches the key generated for a record whose entry has no key: see
# `memory.project.apply.free_key`.
_GENERATED = re.compile(r"(.+)-([1-9][0-9]{0,17})")


class MergeRefused(ValueError):
    """The users can't be merged; the message says why."""


def merge(user: MemoryUser, merged: MemoryUser, *, by: str) -> Merge:
    """Merge `merged` into `user`: close `merged`, and queue its entries for copying.

    A repeated call returns the existing merge. Raises MergeRefused if these users cannot be merged,
    for example because they belong to different workspaces, and BeingRedacted while content from
    either user is being redacted.
    """
    if user.pk == merged.pk:
        raise MergeRefused(f"{user} cannot be merged into itself: name another user.")
    if user.workspace_id != merged.workspace_id:
        raise MergeRefused(f"{merged} belongs to another workspace.")
    with transaction.atomic():
        rows = copies.lock([user.pk, merged.pk])
        user, merged = rows[user.pk], rows[merged.pk]
        existing = Merge.objects.filter(merged=merged).select_related("user", "merged").first()
        if existing is not None:
            if existing.user_id == user.pk:
                return existing
            raise MergeRefused(f"{merged} was already merged into {existing.user}.")
        _refuse(user, merged)
        return _close(user, merged, by)


def _refuse(user: MemoryUser, merged: MemoryUser) -> None:
    if user.merged_into is not None:
        raise MergeRefused(f"{user} was merged into {final(user)}: merge {merged} into that user.")
    for row in (user, merged):
        refuse_being_redacted(row)
        if redaction.waiting().filter(user=row).exists():
            raise BeingRedacted
    under_way = waiting().filter(user=merged).select_related("merged").first()
    if under_way is not None:
        raise MergeRefused(
            f"{under_way.merged} is still being merged into {merged}. Try again when that merge is"
            " done."
        )
    if Checkpoint.objects.filter(user=merged, origin=Origin.IMPORTED).exists():
        raise MergeRefused(
            f"A project was imported for {merged}, and its records are not in the log: export the"
            f" project, and append the records as typed entries to the log of {user}."
        )


def _close(user: MemoryUser, merged: MemoryUser, by: str) -> Merge:
    now = timezone.now()
    lanes.interrupt(merged.pk)
    Lane.objects.filter(user=merged).update(due_at=None, waiting=0, waiting_since=None)
    runs.close(Run.objects.filter(user=merged), _describe_merge(merged, user))
    forecasts.forget(merged)
    Forecast.objects.filter(user=merged).update(due_at=None)
    outline = merged.head.outline if merged.head else {}
    row = Merge.objects.create(
        user=user,
        merged=merged,
        by=by,
        created_at=now,
        last_seq=merged.last_seq,
        left_behind=[constraint_path(name) for name, _ in outline.get("constraints", ())],
        alerts=handover.hand_over(merged, user),
        due_at=now,
        hinted_at=now,
    )
    merged.merged_into = user
    merged.constraints_due_at = merged.constraints_changed_at = None
    merged.save(update_fields=["merged_into", "constraints_due_at", "constraints_changed_at"])
    hint("merges", row.pk, workspace_pk=user.workspace_id)
    return row


def _describe_merge(merged: MemoryUser, user: MemoryUser) -> str:
    return f"{merged} was merged into {user}: use that user."


def close_late_runs() -> int:
    """Close runs queued while their user was being merged; return the number of users affected."""
    late = MemoryUser.objects.filter(
        Exists(Run.objects.unfinished().filter(user=OuterRef("pk"))),
        merged_into__isnull=False,
    ).select_related("merged_into")
    users = list(late)
    for merged in users:
        runs.close(Run.objects.filter(user=merged), _describe_merge(merged, final(merged)))
    return len(users)


def waiting() -> QuerySet[Merge]:
    """Select the merges that are not complete yet."""
    return Merge.objects.filter(due_at__isnull=False)


# -- Copying entries ------------------------------------------------------------------------------


def copy_entries(row: Merge) -> bool:
    """Continue a merge that the caller has claimed; return whether batches remain.

    Each batch is copied in its own transaction: if a worker is killed, the batches it has copied
    are kept, as is the position to resume from. Raises LeaseLost if the caller has lost its claim.
    """
    for _ in range(MAX_BATCHES):
        if not _copy_batch(row):
            logger.info("merged", user=row.user_id, merged=row.merged_id, copied=row.copied)
            return False
    leases.release(row, run_after=timezone.now())
    return True


def _copy_batch(row: Merge) -> bool:
    """Copy the next batch; return False if nothing is left."""
    with transaction.atomic():
        users = copies.lock([row.user_id, row.merged_id])
        leases.check(row)
        user, merged = users[row.user_id], users[row.merged_id]
        entries = _next(row)
        if not entries:
            leases.release(row, due_at=None, finished_at=timezone.now(), last_error="")
            return False
        copied = _append(row, user, merged, entries)
        row.cursor_seq, row.copied = entries[-1].seq, row.copied + copied
        leases.write(
            row, cursor_seq=row.cursor_seq, copied=row.copied, skipped=row.skipped, attempts=0
        )
    return True


def _next(row: Merge) -> list[LogEntry]:
    entries = LogEntry.objects.filter(
        user=row.merged_id, seq__gt=row.cursor_seq, seq__lte=row.last_seq
    ).order_by("seq")
    batch: list[LogEntry] = []
    characters = 0
    for entry in entries[:BATCH].iterator(chunk_size=50):
        batch.append(entry)
        characters += len(entry.content or "")
        if characters > BATCH_CHARACTERS:
            break
    return batch


def _append(row: Merge, user: MemoryUser, merged: MemoryUser, entries: Sequence[LogEntry]) -> int:
    """Append copies of the entries and their outcomes; the caller has locked both users' rows.

    Redacted entries, and entries that record a redaction, are not copied. Neither are entries whose
    idempotency key belongs to an entry that was redacted in the user's log, nor what was derived
    from them: they may bring back what the person had asked to remove. `row.skipped` names these.
    """
    statements = [one for one in entries if not one.redacted_at and one.kind != EntryKind.REDACTION]
    cited = {seq for one in statements for seq in one.derived_from}
    named = {seq for one in statements if (seq := _named(one)) is not None}
    became = copies.became(row, cited | named)
    nameless = _nameless(merged, named)
    taken = entry_log.find_by_key(user, (one.idempotency_key for one in statements))
    redacted = redactions.redacted_among(user, [one.seq for one in taken.values()])
    skipped = set(row.skipped)
    drafts: list[entry_log.Draft] = []
    new: list[LogEntry] = []
    for entry in statements:
        earlier = taken.get(entry.idempotency_key) if entry.idempotency_key else None
        was_redacted = earlier is not None and earlier.seq in redacted
        if was_redacted or not skipped.isdisjoint(entry.derived_from):
            skipped.add(entry.seq)
            continue
        draft = _draft(entry, became, nameless)
        if earlier is not None:
            # An entry that is in both logs is not copied. A different entry with the same
            # idempotency key is copied without the key.
            if entry_log.says_the_same(earlier, replace(draft, occurred_at=None)):
                became[entry.seq] = earlier.seq
                continue
            draft = replace(draft, idempotency_key=None)
        became[entry.seq] = user.last_seq + len(drafts) + 1
        drafts.append(draft)
        new.append(entry)
    appended = entry_log.append(user, drafts, source="merge") if drafts else []
    assert [one.seq for one in appended] == [became[one.seq] for one in new], "under the lock"
    _note(row, [(one.seq, became[one.seq]) for one in statements if one.seq not in skipped])
    row.skipped = sorted(skipped)
    _settle(user, merged, new, appended)
    return len(appended)


def _draft(
    entry: LogEntry, became: Mapping[int, int], nameless: Mapping[int, str]
) -> entry_log.Draft:
    payload = {name: getattr(entry, name) for name in PAYLOAD_FIELDS}
    data = entry.data
    seq = _named(entry)
    if data and seq and seq in became and nameless.get(seq) == data["type"]:
        payload["data"] = {**data, "key": key_of_entry(data["type"], became[seq])}
    return entry_log.Draft(
        kind=EntryKind(entry.kind),
        occurred_at=entry.occurred_at,
        derived_from=[became[seq] for seq in entry.derived_from if seq in became],
        trust=Trust(entry.trust),
        **payload,
    )


def _named(entry: LogEntry) -> int | None:
    """Return the entry number in a record's key if the server could have generated the key."""
    data = entry.data if entry.kind == EntryKind.RECORD else None
    match = _GENERATED.fullmatch((data or {}).get("key") or "")
    return int(match[2]) if data and match and match[1] == snake(data["type"]) else None


def _nameless(merged: MemoryUser, seqs: set[int]) -> dict[int, str]:
    """Map the number of each of the entries that is a typed record without a key to its type."""
    entries = LogEntry.objects.filter(user=merged, seq__in=seqs, kind=EntryKind.RECORD)
    return {one.seq: one.data["type"] for one in entries if one.data and not one.data.get("key")}


def _note(row: Merge, pairs: Sequence[tuple[int, int]]) -> None:
    ranges: list[CopiedEntries] = []
    for from_seq, seq in pairs:
        last = ranges[-1] if ranges else None
        if last and (from_seq, seq) == (last.from_seq + last.number, last.seq + last.number):
            last.number += 1
        else:
            ranges.append(CopiedEntries(merge=row, from_seq=from_seq, seq=seq, number=1))
    CopiedEntries.objects.bulk_create(ranges)


def _settle(
    user: MemoryUser,
    merged: MemoryUser,
    entries: Sequence[LogEntry],
    copies: Sequence[LogEntry],
) -> None:
    """Copy the outcomes that stay final: those of messages, and of dismissed facts and corrections.

    All other entries are processed again, since they have to reach this user's project. The
    messages returned by `_used_by_agents` are processed again, too.
    """
    outcomes = EntryOutcome.objects.filter(user=merged, seq__in=[one.seq for one in entries])
    settled_rows = outcomes.exclude(seq__in=_used_by_agents(merged, entries))
    settled = {outcome.seq: outcome for outcome in settled_rows}
    kept = [
        EntryOutcome(
            user=user,
            seq=copy.seq,
            outcome=settled[entry.seq].outcome,
            reason=settled[entry.seq].reason,
            checkpoint=user.head,
            decided_at=copy.recorded_at,
        )
        for entry, copy in zip(entries, copies, strict=True)
        if entry.seq in settled and _stays(entry, settled[entry.seq])
    ]
    if kept:
        EntryOutcome.objects.bulk_create(kept)
        if lanes.recount(user.pk):
            hint("structure", user.pk, workspace_pk=user.workspace_id)


def _stays(entry: LogEntry, outcome: EntryOutcome) -> bool:
    if entry.kind == EntryKind.RECORD:
        return False
    return entry.kind == EntryKind.MESSAGE or outcome.outcome == Outcome.DISMISSED


def _used_by_agents(merged: MemoryUser, entries: Sequence[LogEntry]) -> set[int]:
    """Return the messages that an agent turned into records but no model extracted facts from.

    No other entry contains what the agent learned from these messages.
    """
    seqs = {entry.seq for entry in entries if entry.kind == EntryKind.MESSAGE}
    cited: set[int] = set()
    proposed = Checkpoint.objects.filter(
        Exists(EntryOutcome.objects.filter(checkpoint=OuterRef("pk"), seq__in=seqs)),
        user=merged,
        origin=Origin.PROPOSED,
    )
    for edits in proposed.values_list("edits", flat=True).iterator(chunk_size=20):
        cited |= {seq for edit in edits for seq in edit.get("sources", ())} & seqs
    if not cited:
        return set()
    facts = LogEntry.objects.filter(
        user=merged, seq__gt=min(cited), derived_from__overlap=sorted(cited)
    )
    used = {
        seq for derived_from in facts.values_list("derived_from", flat=True) for seq in derived_from
    }
    return cited - used
