"""Refusals of requests that exceed a limit, and their counters for Prometheus, per workspace.

The counters are stored in Redis. Like all data in Redis, they may be lost, and then restart at
zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import redis
import structlog

from memory.kernel.models.workspaces import Workspace
from memory.kernel.work.hints import QUICK_SECONDS, redis_client

logger = structlog.get_logger(__name__)

KEY = "refused"


@dataclass
class LimitExceeded(Exception):
    """The request would exceed a limit; `wait` is in seconds, or None if retrying won't help."""

    limit: str
    detail: str
    wait: float | None = None

    def __str__(self) -> str:
        return self.detail


def refuse(workspace: Workspace, limit: str, detail: str, wait: float | None = None) -> NoReturn:
    """Count a refusal because of the rate limit or quota `limit`, and raise LimitExceeded."""
    try:
        redis_client(patience=QUICK_SECONDS).hincrby(KEY, f"{workspace.public_id} {limit}", 1)
    except redis.RedisError as error:
        logger.warning("refusal_not_counted", limit=limit, error=str(error))
    raise LimitExceeded(limit, detail, wait)


def counters() -> Iterator[tuple[str, str, int]]:
    """Yield (workspace public id, limit, number of refusals) for each counter.

    Raises RedisError if Redis does not respond.
    """
    numbers: Any = redis_client().hgetall(KEY)
    for name, number in numbers.items():
        workspace, _, limit = name.decode().partition(" ")
        yield workspace, limit, int(number)
