"""Requests to index a log's newest entries; until they are indexed, searches read them directly."""

from collections.abc import Sequence

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.kernel.work.hints import hint
from memory.log.models.entries import LogEntry
from memory.recall.models import SearchIndex

# Indexing is requested for every TAIL entries, or for at least this many new characters.
TAIL = 64
TAIL_CHARACTERS = 20_000

WANTED = """
SELECT due_at IS NOT NULL AND (is_multilingual OR NOT %s)
FROM memory_searchindex WHERE user_id = %s FOR NO KEY UPDATE
"""


def appended(user: MemoryUser, entries: Sequence[LogEntry]) -> None:
    """Request indexing if, with these new entries, the log's unindexed tail is too long.

    Call this in the transaction that appends the entries.
    """
    before, after = entries[0].seq - 1, entries[-1].seq
    characters = sum(len(entry.content or "") for entry in entries)
    if before // TAIL != after // TAIL or characters >= TAIL_CHARACTERS:
        want(user.pk, user.workspace_id)


def want(user_pk: int, workspace_pk: int | None = None, *, is_multilingual: bool = False) -> None:
    """Request indexing of a user's log, unless a request is already pending.

    `is_multilingual` requests vectors of the multilingual model, now and from now on.

    Before a worker releases the index, it waits for the current transaction to end and then checks
    for new entries.
    """
    with connection.cursor() as cursor:
        cursor.execute(WANTED, [is_multilingual, user_pk])
        if cursor.fetchone() == (True,):
            return
    SearchIndex.objects.bulk_create(
        [SearchIndex(user_id=user_pk, due_at=timezone.now(), is_multilingual=is_multilingual)],
        update_conflicts=True,
        unique_fields=["user"],
        update_fields=["due_at", *(["is_multilingual"] if is_multilingual else [])],
    )
    hint("indexes", user_pk, workspace_pk=workspace_pk)


def waiting() -> QuerySet[SearchIndex]:
    """Select the indexes with pending work."""
    return SearchIndex.objects.filter(due_at__isnull=False)
