"""The worker's part in a merge: copy one batch after another while holding the lease."""

import structlog
from django.utils import timezone

from memory import merging
from memory.work import leases
from memory.work.hints import send_hint

logger = structlog.get_logger(__name__)

# Number of batches to copy before other tasks get their turn, so that a user with a million entries
# doesn't block a thread.
MAX_BATCHES = 25


def work_on(merge_pk: int) -> None:
    """Continue a merge, unless another worker is already doing so.

    Each batch is copied in its own transaction: if a worker is killed, the batches it has copied
    are kept, as is the position to resume from.
    """
    row = leases.claim(merging.waiting().filter(pk=merge_pk))
    if row is None:
        return
    try:
        with leases.kept(row):
            for _ in range(MAX_BATCHES):
                if not merging.copy(row):
                    logger.info("merged", user=row.user_id, merged=row.merged_id, copied=row.copied)
                    return
        leases.release(row, run_after=timezone.now())
    except leases.LeaseLost:
        logger.warning("lease_lost", merge=merge_pk)
        return
    except Exception as error:
        leases.fail(row, f"{type(error).__name__}: {error}")
        raise
    send_hint(merging.TASK, [merge_pk])
