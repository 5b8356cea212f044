"""Lanes: a user's entries that are waiting for one kind of work, and that work's state."""

from collections.abc import Collection, Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet, Value
from django.db.models.functions import Least
from django.utils import timezone

from memory.kernel.canonical import exact_json
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.users import workable
from memory.kernel.work import leases
from memory.kernel.work.hints import hint
from memory.log import batching
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry

KINDS = {
    LaneName.RECORDS: [EntryKind.RECORD],
    LaneName.STRUCTURE: [EntryKind.MESSAGE, EntryKind.FACT, EntryKind.CORRECTION],
}
# A batch ends with the entry that takes its size beyond this number of bytes.
BATCH_BYTES = 2 * 1024 * 1024


def due(name: LaneName) -> QuerySet[Lane]:
    """Select the lanes of this kind that have work due, even lanes that are held or backing off.

    Typed records are due immediately. While any of a user's entries are being redacted, neither of
    the user's lanes is selected.
    """
    lanes = Lane.objects.filter(workable(), name=name, due_at__isnull=False)
    if name == LaneName.RECORDS:
        return lanes
    return lanes.filter(due_at__lte=timezone.now() + leases.SKEW)


def due_with_records() -> QuerySet[Lane]:
    """Select the lanes with typed entries that are due."""
    return due(LaneName.RECORDS)


def due_for_models() -> QuerySet[Lane]:
    """Select the lanes that a language model has to process and that have one.

    Lanes without a model would just keep workers busy.
    """
    lanes = due(LaneName.STRUCTURE)
    return lanes if settings.UAC_LLM_MODEL else lanes.exclude(user__workspace__llm_model="")


def pending(
    lane: Lane,
    limit: int,
    *,
    kinds: Sequence[EntryKind] = (),
    without: Collection[int] = (),
) -> list[LogEntry]:
    """Return the lane's oldest entries without an outcome, in order.

    Returns at most `limit` entries, fewer if they are large. If `kinds` are given, only entries of
    these kinds are returned. Entries whose numbers are in `without` are excluded.
    """
    entries = undecided(lane)
    if kinds:
        entries = entries.filter(kind__in=kinds)
    if without:
        entries = entries.exclude(seq__in=without)
    batch: list[LogEntry] = []
    size = 0
    for entry in entries[:limit].iterator(chunk_size=100):
        batch.append(entry)
        size += len(exact_json(entry.data)) + len(entry.content or "")
        if size > BATCH_BYTES:
            break
    return batch


def undecided(lane: Lane) -> QuerySet[LogEntry]:
    """Select the lane's entries that have no outcome yet, oldest first."""
    decided = EntryOutcome.objects.filter(user=OuterRef("user"), seq=OuterRef("seq"))
    return LogEntry.objects.filter(
        ~Exists(decided),
        user_id=lane.user_id,
        kind__in=KINDS[LaneName(lane.name)],
        seq__gt=lane.cursor_seq,
    ).order_by("seq")


def hurry(lanes: QuerySet[Lane]) -> int:
    """Make these lanes' pending work due now; return how many lanes have pending work."""
    now = timezone.now()
    return lanes.filter(due_at__isnull=False).update(
        due_at=Least("due_at", Value(now)), run_after=now, hinted_at=None
    )


def release(lane: Lane) -> bool:
    """Release the lane after success; return whether to wake workers because more work is due.

    Also stores `cursor_seq`, up to which the caller has given all entries outcomes, to speed up
    later queries. Raises LeaseLost if the caller has lost the lane. Appends, like this function,
    begin by locking the user's row, so either this function sees a new entry, or the append finds
    the lane free.
    """
    with transaction.atomic():
        MemoryUser.objects.locked(lane.user_id)
        leases.check(lane)
        given_back = {
            **leases.RELEASED,
            "cursor_seq": lane.cursor_seq,
            "attempts": 0,
            "last_error": "",
            # Set to now, so that any remaining work has to queue behind the workspace's other
            # users.
            "run_after": timezone.now(),
        }
        row = Lane.objects.filter(pk=lane.pk)
        if lane.name == LaneName.STRUCTURE:
            row.update(**given_back)
            return recount(lane.user_id)
        oldest = undecided(lane).values_list("recorded_at", flat=True).first()
        row.update(**given_back, due_at=oldest)  # shows how long the work has been waiting
    return oldest is not None


def recount(user_pk: int) -> bool:
    """Reschedule language model work based on the number of pending entries and their timestamps.

    The caller must have locked the user's row. Returns whether to wake the workers.
    """
    lane = Lane.objects.select_related("user").get(user_id=user_pk, name=LaneName.STRUCTURE)
    if lane.user.merged_into_id is not None:
        return False  # the copies of its entries in the other user's log are processed instead
    rest = list(undecided(lane).values_list("recorded_at", "metadata")[: batching.MAX_ENTRIES])
    Lane.objects.filter(pk=lane.pk).update(waiting=0, waiting_since=None, due_at=None)
    if not rest:
        return False
    return batching.announce(
        user_pk,
        len(rest),
        first=rest[0][0],
        last=rest[-1][0],
        urgent=any(batching.is_urgent(metadata) for _, metadata in rest),
        now=timezone.now(),
    )


def interrupt(user_pk: int) -> None:
    """Revoke both lanes' leases, because workers must not write results based on stale reads.

    The caller must have locked the user's row.
    """
    Lane.objects.filter(user=user_pk).update(**leases.REVOKED, hinted_at=None)


def begin_again(user: MemoryUser, seq: int) -> None:
    """Make both lanes start over at entry `seq`: some entries from there on are pending again.

    A worker that holds a lane has read data that is now outdated, so its writes are rejected. The
    caller must have locked the user's row.
    """
    interrupt(user.pk)
    Lane.objects.filter(user=user).update(cursor_seq=Least("cursor_seq", Value(seq - 1)))
    now = timezone.now()
    Lane.objects.filter(user=user, user__merged_into=None, name=LaneName.RECORDS).update(
        due_at=now, run_after=now
    )
    recount(user.pk)
    hint("records", user.pk, workspace_pk=user.workspace_id, user_pk=user.pk)
