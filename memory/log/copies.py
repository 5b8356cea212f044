"""Copied entries: which entries in one user's log were copied from another's by a merge.

A merge copies entries in order, so the mapping is stored as ranges. Operations that must affect all
copies of an entry, such as a redaction, find the copies here.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from django.db.models import F, Q

from memory.kernel.models.users import MemoryUser
from memory.log.models.merges import CopiedEntries, Merge


def family(user_pks: Collection[int]) -> list[int]:
    """Return the primary keys of these users and of all users connected to them by merges."""
    pks, newest = set(user_pks), set(user_pks)
    while newest:
        merges = Merge.objects.filter(Q(user__in=newest) | Q(merged__in=newest))
        newest = {pk for row in merges for pk in (row.user_id, row.merged_id)} - pks
        pks |= newest
    return sorted(pks)


def merged_into(user: MemoryUser) -> list[MemoryUser]:
    """Return all users who were merged into this one, directly or indirectly."""
    merged: dict[int, MemoryUser] = {}
    newest = {user.pk}
    while newest:
        merges = Merge.objects.filter(user__in=newest).exclude(merged__in=[user.pk, *merged])
        rows = merges.select_related("merged__workspace", "merged__head")
        newest = {row.merged_id for row in rows}
        merged |= {row.merged_id: row.merged for row in rows}
    return list(merged.values())


def lock_families(user_pks: Collection[int]) -> dict[int, MemoryUser]:
    """Lock the rows of these users' families (see `family`); return a dict keyed by primary key.

    All callers lock in the same order, so they cannot deadlock. Raises MemoryUser.DoesNotExist if
    one of the users was erased in the meantime.
    """
    while True:
        pks = family(user_pks)
        rows = lock(pks)
        if pks == family(user_pks):  # no user was merged in the meantime
            return rows


def lock(user_pks: Iterable[int]) -> dict[int, MemoryUser]:
    """Lock these users' rows in key order, to avoid deadlocks; return a dict keyed by primary key.

    Raises MemoryUser.DoesNotExist if one of the users was erased in the meantime.
    """
    wanted = set(user_pks)
    rows = MemoryUser.objects.select_for_update(no_key=True).filter(pk__in=wanted)
    users = {row.pk: row for row in rows.order_by("pk")}
    if users.keys() != wanted:
        raise MemoryUser.DoesNotExist("one of these users was erased in the meantime")
    return users


def everywhere(
    user: MemoryUser, seqs: Collection[int], closure: Callable[[int, Collection[int]], set[int]]
) -> dict[int, set[int]]:
    """Return all originals and copies of these entries and of the entries added by `closure`.

    The result includes the entries themselves; it maps each user's primary key to the entry numbers
    in that user's log.
    """
    seqs_by_user = {user.pk: closure(user.pk, seqs)}
    todo = [user.pk]
    while todo:
        pk = todo.pop()
        for merge in Merge.objects.filter(Q(user=pk) | Q(merged=pk)):
            if merge.merged_id == pk:
                other, mapped = merge.user_id, set(became(merge, seqs_by_user[pk]).values())
            else:
                other, mapped = merge.merged_id, set(came_from(merge, seqs_by_user[pk]).values())
            before = seqs_by_user.get(other, set())
            if mapped - before:
                seqs_by_user[other] = before | closure(other, mapped)
                todo.append(other)
    return seqs_by_user


def became(merge: Merge, seqs: Collection[int]) -> dict[int, int]:
    """Map the number of each of the merged user's copied entries to its copy's number."""
    return _mapped(merge, seqs, "from_seq", "seq")


def came_from(merge: Merge, seqs: Collection[int]) -> dict[int, int]:
    """Map the number of each copy among these entries to its original's number."""
    return _mapped(merge, seqs, "seq", "from_seq")


def origins(user: MemoryUser, seqs: Collection[int]) -> dict[int, tuple[Merge, int]]:
    """Map the number of each copy among these entries to its merge and its original's number."""
    return {
        seq: (merge, original)
        for merge in Merge.objects.filter(user=user).select_related("merged")
        for seq, original in came_from(merge, seqs).items()
    }


def _mapped(merge: Merge, seqs: Collection[int], given: str, wanted: str) -> dict[int, int]:
    if not seqs:
        return {}
    ranges: Sequence[tuple[int, int, int]] = list(
        CopiedEntries.objects.filter(
            merge=merge, **{f"{given}__lte": max(seqs), f"{given}__gt": min(seqs) - F("number")}
        )
        .order_by(given)
        .values_list(given, wanted, "number")
    )
    mapped = {}
    index = 0
    for seq in sorted(set(seqs)):
        while index < len(ranges) and ranges[index][0] + ranges[index][2] <= seq:
            index += 1
        if index < len(ranges) and ranges[index][0] <= seq:
            mapped[seq] = ranges[index][1] + seq - ranges[index][0]
    return mapped
