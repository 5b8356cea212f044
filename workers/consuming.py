"""How a worker takes hints: as many as it has free threads, so that the others stay for whoever is
free; and without acknowledging them, since a hint that is lost is given again.
"""

from typing import Any

from celery import bootsteps
from celery.concurrency.thread import TaskPool
from celery.signals import task_postrun, task_received
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.asynchronous import Hub

# So long after a task's end its thread counts as free, and is looked at again until it does.
AGAIN_SECONDS = 0.001


class Consuming(bootsteps.StartStopStep):
    """Wakes the loop that takes messages when a thread becomes free.

    With `worker_disable_prefetch` the loop stops listening while no thread is free, and would not
    notice for a second that one is.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    hub: Hub | None = None

    def start(self, parent: Consumer) -> None:
        """Remember the loop of this connection. The end of a child process wakes it by itself."""
        if isinstance(parent.pool, TaskPool):
            Consuming.hub = parent.hub  # type: ignore[attr-defined]


@task_received.connect
def _need_no_acknowledgement(request: Any, **kwargs: Any) -> None:
    request.acknowledged = True


@task_postrun.connect
def _look_again(task_id: str, **kwargs: Any) -> None:
    hub = Consuming.hub
    if hub is not None:
        hub.call_soon(_when_free, hub, task_id)


def _when_free(hub: Hub, task_id: str) -> None:
    if task_id in state.requests:
        hub.call_later(AGAIN_SECONDS, _when_free, hub, task_id)
