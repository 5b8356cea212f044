"""What a worker does when it has started and before it ends: it keeps sandboxes ready meanwhile."""

from typing import Any

import structlog
from celery.signals import worker_ready, worker_shutdown
from django.conf import settings

from workers import metrics
from workers.llm import metrics as llm_metrics
from workers.sandbox import runner
from workers.sandbox.image import default_image

logger = structlog.get_logger(__name__)


@worker_ready.connect
def open_pool(sender: Any, **kwargs: Any) -> None:
    """Have sandboxes ready where their work is done, before the first of it comes."""
    if "sandbox" in sender.app.amqp.queues.consume_from:
        runner.open_pool()
        if settings.UAC_METRICS_PORT:
            serve_metrics()


def serve_metrics() -> None:
    """Answer Prometheus; a port that is taken is logged, and no reason to do no work."""
    about = {
        "runner": runner.runner_name(),
        "runtime": settings.UAC_SANDBOX_RUNTIME or "default",
        "image": settings.UAC_SANDBOX_IMAGE or default_image(),
    }
    address, port = settings.UAC_METRICS_ADDRESS, settings.UAC_METRICS_PORT
    try:
        metrics.serve(address, port, runner.pools, about)
    except OSError as error:
        logger.error("metrics_not_served", address=address, port=port, error=str(error))
    else:
        llm_metrics.register()


@worker_shutdown.connect
def close_pool(**kwargs: Any) -> None:
    """Leave no sandbox behind."""
    runner.close_pool()
