"""Serve Prometheus metrics: each of the server's processes uses its own port, if configured."""

import structlog
from django.conf import settings
from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    start_http_server,
)

from workers.llm import metrics as llm_metrics
from workers.metrics import load_metrics, webhook_metrics, work_metrics
from workers.metrics.reading_metrics import Read

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
    for module in (work_metrics, load_metrics, llm_metrics, webhook_metrics):
        registry.register(Read(*module.READS))
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
