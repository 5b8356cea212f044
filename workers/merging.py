"""The worker's part in a merge: copy one batch after another while holding the lease."""

import structlog
from django.utils import timezone

from memory.integrations import merging
from memory.kernel.work import leases
from memory.log.models.merges import Merge

logger = structlog.get_logger(__name__)

# Number of batches to copy before other work gets its turn, so that a user with a million entries
# doesn't block a thread.
MAX_BATCHES = 25


def merge(row: Merge) -> bool:
    """Continue a merge that the caller has claimed; return whether batches remain.

    Each batch is copied in its own transaction: if a worker is killed, the batches it has copied
    are kept, as is the position to resume from.
    """
    for _ in range(MAX_BATCHES):
        if not merging.copy(row):
            logger.info("merged", user=row.user_id, merged=row.merged_id, copied=row.copied)
            return False
    leases.release(row, run_after=timezone.now())
    return True
