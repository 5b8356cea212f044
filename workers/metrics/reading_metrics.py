"""Metrics for the whole server, read from the database and Redis on each scrape."""

from collections.abc import Callable, Iterable, Iterator

import redis
import structlog
from django.db import Error, connection
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

logger = structlog.get_logger(__name__)


class Read(Collector):
    """Metrics read by functions; if one fails, the other functions' metrics are still served.

    The functions run in a separate thread, whose database connection is closed afterwards.
    """

    def __init__(self, *reads: Callable[[], Iterable[Metric]]) -> None:
        self._reads = reads

    def describe(self) -> Iterable[Metric]:
        """Describe nothing in advance, so that registering the collector reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, all of them read over a single database connection."""
        try:
            for read in self._reads:
                try:
                    yield from list(read())
                except (Error, redis.RedisError) as error:
                    logger.warning("metrics_not_read", of=read.__module__, error=str(error))
        finally:
            connection.close()
