"""Lanes: which entries wait for a kind of work, and when none is left."""

from collections.abc import Collection, Sequence

from django.db import transaction
from django.db.models import Exists, OuterRef

from memory import leases
from memory.canonical import exact_json
from memory.models import EntryOutcome, Lane, LogEntry, MemoryUser
from memory.models.log import EntryKind
from memory.models.users import LaneName

KINDS = {
    LaneName.RECORDS: [EntryKind.RECORD],
    LaneName.STRUCTURE: [EntryKind.MESSAGE, EntryKind.FACT, EntryKind.CORRECTION],
}


# A batch ends with the entry that makes it larger than this, as JSON.
BATCH_BYTES = 2 * 1024 * 1024


def pending(
    lane: Lane,
    limit: int,
    *,
    kinds: Sequence[EntryKind] = (),
    without: Collection[int] = (),
) -> list[LogEntry]:
    """Return the oldest entries of the lane that have no outcome yet, in their order.

    At most `limit`, and fewer where they are large; of these `kinds` alone, if some are named, and
    without those numbers.
    """
    decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
    found = LogEntry.objects.filter(
        ~Exists(decided),
        user_id=lane.user_id,
        kind__in=kinds or KINDS[LaneName(lane.name)],
        seq__gt=lane.cursor_seq,
    )
    if without:
        found = found.exclude(seq__in=without)
    found = found.order_by("seq")[:limit]
    batch: list[LogEntry] = []
    size = 0
    for entry in found.iterator(chunk_size=100):
        batch.append(entry)
        size += len(exact_json(entry.data)) + len(entry.content or "")
        if size > BATCH_BYTES:
            break
    return batch


def advance(lane: Lane, seq: int) -> None:
    """Remember that every entry of the lane up to `seq` has an outcome. Only a shortcut."""
    lane.cursor_seq = seq
    Lane.objects.filter(pk=lane.pk, token=lane.token).update(cursor_seq=seq)


def release(lane: Lane) -> bool:
    """Give the lane back after success; return whether entries wait in it. Raises LeaseLost.

    An append takes the user's row first, too: an entry is either seen here or finds the lane free.
    """
    with transaction.atomic():
        MemoryUser.objects.select_for_update(no_key=True).get(pk=lane.user_id)
        leases.check(lane)
        more = bool(pending(lane, 1))
        lane.lease_owner, lane.lease_expires_at = "", None
        lane.attempts, lane.last_error = 0, ""
        if not more:
            lane.due_at = None
        lane.save()
    return more
