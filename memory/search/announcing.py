"""When the newest entries of a log are to be indexed. Until then a search reads them itself."""

from collections.abc import Sequence

from django.db.models import QuerySet
from django.utils import timezone

from memory.hints import hint
from memory.models import LogEntry, SearchIndex

TASK = "workers.tasks.index_log"
# So many entries, or characters, are worth a segment.
TAIL = 64
TAIL_CHARACTERS = 20_000


def appended(user_pk: int, entries: Sequence[LogEntry]) -> None:
    """Have the log indexed if these entries make its tail long. Call it in their transaction."""
    before, after = entries[0].seq - 1, entries[-1].seq
    characters = sum(len(entry.content or "") for entry in entries)
    if before // TAIL != after // TAIL or characters >= TAIL_CHARACTERS:
        want(user_pk)


def want(user_pk: int) -> None:
    """Have what is not indexed of a user's log looked at, soon."""
    SearchIndex.objects.bulk_create(
        [SearchIndex(user_id=user_pk, due_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["user"],
        update_fields=["due_at"],
    )
    hint(TASK, user_pk)


def waiting() -> QuerySet[SearchIndex]:
    """Return the indexes that are to be worked on."""
    return SearchIndex.objects.filter(due_at__isnull=False)
