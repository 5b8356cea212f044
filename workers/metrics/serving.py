"""Serve Prometheus metrics: every process of the server does so on its own port, if it has one."""

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
    """Serve the metrics of the whole server, and of this process or the given registry.

    Returns whether they are served. A port that is taken is logged, but does not stop the process.
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
    """Return a registry of the metrics that every process has, not including those of sandboxes."""
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return registry
