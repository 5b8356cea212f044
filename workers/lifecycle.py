"""What a worker does when it has started and before it ends: it keeps sandboxes ready meanwhile."""

from typing import Any

import structlog
from celery.signals import worker_ready, worker_shutdown

from workers.sandbox import runner

logger = structlog.get_logger(__name__)


@worker_ready.connect
def open_pool(sender: Any, **kwargs: Any) -> None:
    """Have sandboxes ready where their work is done, before the first of it comes."""
    if "sandbox" in sender.app.amqp.queues.consume_from:
        runner.open_pool()


@worker_shutdown.connect
def close_pool(**kwargs: Any) -> None:
    """Leave no sandbox behind."""
    runner.close_pool()
