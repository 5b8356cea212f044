"""When the newest entries of a log are to be indexed. Until then a search reads them itself."""

from collections.abc import Sequence

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from memory.models import LogEntry, MemoryUser, SearchIndex
from memory.work.hints import hint

TASK = "workers.tasks.index_log"
# So many entries, or characters, are worth a segment.
TAIL = 64
TAIL_CHARACTERS = 20_000

WANTED = "SELECT due_at IS NOT NULL FROM memory_searchindex WHERE user_id = %s FOR NO KEY UPDATE"


def appended(user: MemoryUser, entries: Sequence[LogEntry]) -> None:
    """Have the log indexed if these entries make its tail long. Call it in their transaction."""
    before, after = entries[0].seq - 1, entries[-1].seq
    characters = sum(len(entry.content or "") for entry in entries)
    if before // TAIL != after // TAIL or characters >= TAIL_CHARACTERS:
        want(user.pk, user.workspace_id)


def want(user_pk: int, workspace_pk: int | None = None) -> None:
    """Have what is not indexed of a user's log looked at, soon. What is wanted already stays so:
    whoever gives the index back looks for what has come meanwhile, and waits for this transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(WANTED, [user_pk])
        if cursor.fetchone() == (True,):
            return
    SearchIndex.objects.bulk_create(
        [SearchIndex(user_id=user_pk, due_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["user"],
        update_fields=["due_at"],
    )
    hint(TASK, user_pk, workspace_pk=workspace_pk)


def waiting() -> QuerySet[SearchIndex]:
    """Return the indexes that are to be worked on."""
    return SearchIndex.objects.filter(due_at__isnull=False)
