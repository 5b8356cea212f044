"""Figures of the whole server: read from the database and Redis when Prometheus asks."""

from collections.abc import Callable, Iterable, Iterator

import redis
import structlog
from django.db import Error, connection
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

logger = structlog.get_logger(__name__)


class Read(Collector):
    """What some functions read; where one cannot, its figures are left out, and the others served.

    They are called in a thread of its own, whose connection is closed again.
    """

    def __init__(self, *reads: Callable[[], Iterable[Metric]]) -> None:
        self._reads = reads

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask, over one connection for all of them."""
        try:
            for read in self._reads:
                try:
                    yield from list(read())
                except (Error, redis.RedisError) as error:
                    logger.warning("metrics_not_read", of=read.__module__, error=str(error))
        finally:
            connection.close()
