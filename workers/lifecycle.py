"""What a worker does when it has started, when it is told to stop, and before it ends."""

import os
import threading
from typing import Any

import structlog
from celery import current_app
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from prometheus_client import REGISTRY

from workers import metrics, webhook_metrics
from workers.llm import metrics as llm_metrics
from workers.sandbox import runner
from workers.sandbox.image import default_image

logger = structlog.get_logger(__name__)

# For so long a worker that is told to stop waits for its calls of language models.
STOP_SECONDS = 10.0


@worker_ready.connect
def begin(sender: Any, **kwargs: Any) -> None:
    """Have sandboxes ready where their work is done, before the first of it comes."""
    queues = sender.app.amqp.queues.consume_from
    if "sandbox" in queues:
        runner.open_pool()
    if settings.UAC_METRICS_PORT and ("sandbox" in queues or "llm" in queues):
        serve_metrics(sandboxes="sandbox" in queues)


def serve_metrics(*, sandboxes: bool) -> None:
    """Answer Prometheus; a port that is taken is logged, and no reason to do no work."""
    address, port = settings.UAC_METRICS_ADDRESS, settings.UAC_METRICS_PORT
    registry = REGISTRY if sandboxes else metrics.own_process()
    try:
        metrics.serve(address, port, registry)
    except OSError as error:
        logger.error("metrics_not_served", address=address, port=port, error=str(error))
        return
    llm_metrics.register(registry)
    webhook_metrics.register(registry)
    if sandboxes:
        about = {
            "runner": runner.runner_name(),
            "runtime": settings.UAC_SANDBOX_RUNTIME or "default",
            "image": settings.UAC_SANDBOX_IMAGE or default_image(),
        }
        metrics.register(registry, runner.pools, about)


@worker_shutting_down.connect
def leave_calls_behind(**kwargs: Any) -> None:
    """End in a moment, whatever a language model is still asked, which may take minutes.

    The leases of what is left expire, and another worker does it again.
    """
    if "llm" in current_app.amqp.queues.consume_from:
        timer = threading.Timer(STOP_SECONDS, _leave)
        timer.daemon = True
        timer.start()


def _leave() -> None:
    logger.warning("calls_left_behind", seconds=STOP_SECONDS)
    runner.close_pool()
    os._exit(0)


@worker_shutdown.connect
def close_pool(**kwargs: Any) -> None:
    """Leave no sandbox behind."""
    runner.close_pool()
