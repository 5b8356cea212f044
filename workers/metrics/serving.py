"""Serve Prometheus metrics: every process of the server does, on its own port, if it has one."""

import structlog
from django.conf import settings
from prometheus_client import CollectorRegistry

from workers.llm import metrics as llm_metrics
from workers.metrics import load_metrics, sandbox_metrics, webhook_metrics, work_metrics

logger = structlog.get_logger(__name__)


def serve_metrics(registry: CollectorRegistry | None = None) -> bool:
    """Serve the metrics of the whole server and of this process, or others that are registered.

    Returns whether it does. A port that is taken is logged, and no reason to stop working.
    """
    address, port = settings.UAC_METRICS_ADDRESS, settings.UAC_METRICS_PORT
    if not port:
        return False
    registry = registry or sandbox_metrics.own_process()
    try:
        sandbox_metrics.serve(address, port, registry)
    except OSError as error:
        logger.error("metrics_not_served", address=address, port=port, error=str(error))
        return False
    for module in (work_metrics, load_metrics, llm_metrics, webhook_metrics):
        module.register(registry)
    return True
