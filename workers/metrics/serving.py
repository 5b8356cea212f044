"""Serve Prometheus metrics: each of the server's processes uses its own port, if configured."""

from collections.abc import Callable, Iterable, Iterator

import redis
import structlog
from django.conf import settings
from django.db import Error, connection
from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    start_http_server,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from workers.metrics.server_metrics import READS

logger = structlog.get_logger(__name__)


def serve_metrics(registry: CollectorRegistry | None = None) -> bool:
    """Serve server-wide metrics, and those in `registry` (by default, this process's own metrics).

    Returns whether the metrics are served. If the port is already in use, this is logged but
    doesn't stop the process.
    """
    address, port = settings.UAC_METRICS_ADDRESS, settings.UAC_METRICS_PORT
    if not port:
        return False
    registry = registry or own_process()
    try:
        serve(address, port, registry)
    except OSError as error:
        logger.error("metrics_not_served", address=address, port=port, error=str(error))
        return False
    registry.register(Read(*READS))
    return True


def serve(address: str, port: int, registry: CollectorRegistry) -> None:
    """Start serving the metrics in a separate thread; raise OSError if the port is in use."""
    start_http_server(port, address, registry)


def own_process() -> CollectorRegistry:
    """Return a registry of the metrics common to all processes, without the sandbox metrics."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return registry


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
                    logger.warning("metrics_not_read", of=read.__name__, error=str(error))
        finally:
            connection.close()
