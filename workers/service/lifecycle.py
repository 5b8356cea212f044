"""Hooks that run after a worker has started, when it is asked to stop, and before it exits."""

import os
import threading
from typing import Any

import structlog
from celery.concurrency.thread import TaskPool
from celery.signals import beat_init, worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import Error
from prometheus_client import REGISTRY

from memory.kernel.work import leases
from memory.operations import alarms
from workers.metrics import sandbox_pools
from workers.metrics.serving import serve_metrics
from workers.sandbox import runner
from workers.sandbox.image import default_image
from workers.service.process_tuning import prefer_others, share_fairly, share_memory

logger = structlog.get_logger(__name__)

# Seconds that a stopping worker has to release its work and destroy its sandboxes.
LEAVING_SECONDS = 2.0


@worker_ready.connect
def begin(sender: Any, **kwargs: Any) -> None:
    """Prepare a worker that has just started; a sandbox worker starts keeping sandboxes ready."""
    if "sandbox" in sender.app.amqp.queues.consume_from:
        runner.pool().warm()
        if serve_metrics(REGISTRY):
            about = {
                "runner": runner.runner_name(),
                "runtime": settings.UAC_SANDBOX_RUNTIME or "default",
                "image": settings.UAC_SANDBOX_IMAGE or default_image(),
            }
            sandbox_pools.register(REGISTRY, runner.pools, about)
    else:
        serve_metrics()
    if set(sender.app.amqp.queues.consume_from) == {"default"}:
        prefer_others()
    if isinstance(sender.pool, TaskPool):
        share_fairly()
        share_memory()
        worker_shutting_down.connect(end_soon)
    alarms.watch()


@beat_init.connect
def begin_beat(**kwargs: Any) -> None:
    """Start the alarm checks in beat as well, since it may be running when the workers are not."""
    serve_metrics()
    alarms.watch()
    logger.info("beat_ready")  # Celery logs that it has started before the system checks run


def end_soon(**kwargs: Any) -> None:
    """Make the worker exit within UAC_STOP_SECONDS, whatever its threads are still doing.

    A call to a language model may take minutes. Work that is not finished by then is released so
    that another worker can do it.
    """
    timer = threading.Timer(settings.UAC_STOP_SECONDS, _leave)
    timer.daemon = True
    timer.start()


def _leave() -> None:
    end = threading.Timer(LEAVING_SECONDS, os._exit, [0])
    end.daemon = True
    end.start()
    try:
        logger.warning("work_given_back", pieces=leases.give_back_all())
    except Error as error:  # other workers can claim the work when its leases expire
        logger.warning("work_left_behind", error=str(error))
    runner.close_pool()
    os._exit(0)


@worker_shutdown.connect
def close_pool(**kwargs: Any) -> None:
    """Destroy the kept sandboxes, so that none are left behind."""
    runner.close_pool()
