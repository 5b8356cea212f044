"""Serve Prometheus metrics: each of the server's processes uses its own port, if one is set."""

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

logger = structlog.get_logger(__name__)


def serve_metrics(registry: CollectorRegistry | None = None) -> bool:
    """Serve metrics for the whole server, and those in `registry` (by default, this process's own).

    Returns whether the metrics are served. If the port is taken, that is logged but doesn't stop
    the process.
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
        module.register(registry)
    return True


def serve(address: str, port: int, registry: CollectorRegistry) -> None:
    """Serve the metrics from now on, in a separate thread; raise OSError if the port is taken."""
    start_http_server(port, address, registry)


def own_process() -> CollectorRegistry:
    """Return a registry of the metrics that every process has; sandbox metrics are not included."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return registry
