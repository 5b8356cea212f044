"""Per-workspace counters, for Prometheus, of requests rejected by a rate limit or quota.

The counters are stored in Redis. Like all data in Redis, they may be lost, and then restart at
zero.
"""

from collections.abc import Iterator
from typing import Any

import redis
import structlog

from memory.kernel.models.workspaces import Workspace
from memory.kernel.work.hints import QUICK_SECONDS, redis_client

logger = structlog.get_logger(__name__)

KEY = "refused"


def count(workspace: Workspace, reason: str) -> None:
    """Count a rejected request; `reason` is the name of the rate limit or quota."""
    try:
        redis_client(patience=QUICK_SECONDS).hincrby(KEY, f"{workspace.public_id} {reason}", 1)
    except redis.RedisError as error:
        logger.warning("refusal_not_counted", reason=reason, error=str(error))


def counted() -> Iterator[tuple[str, str, int]]:
    """Yield (workspace public id, reason, count) for each counter.

    Raises RedisError if Redis does not respond.
    """
    told: Any = redis_client().hgetall(KEY)
    for name, number in told.items():
        workspace, _, reason = name.decode().partition(" ")
        yield workspace, reason, int(number)
