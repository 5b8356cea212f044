"""Consume only as many hints as the worker has free threads, leaving the rest to other workers.

Hints are not acknowledged, since a lost hint is sent again.
"""

from typing import Any

from celery import bootsteps
from celery.concurrency.thread import TaskPool
from celery.signals import task_postrun, task_received
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu import Queue
from kombu.asynchronous import Hub

from memory.kernel.work.hosts import SHARED_QUEUE
from workers.service import fair_turns
from workers.service.hosting import Host

# Seconds between checks of whether a thread is considered free after its task has ended.
AGAIN_SECONDS = 0.001


class Consuming(bootsteps.StartStopStep):
    """Make the worker a sandbox host if it consumes the hosts' queue, and keep its threads busy.

    With `worker_disable_prefetch`, the loop that consumes messages stops listening while no thread
    is free. On its own, the loop would take a second to notice that a thread is free again, so this
    class wakes it up.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    # Event loop of a worker with threads. In a worker with child processes this is None, since a
    # child that exits wakes the loop anyway.
    hub: Hub | None = None

    def __init__(self, parent: Consumer, **kwargs: Any) -> None:
        """If the worker is a sandbox host, add the host's own queue before consuming begins."""
        super().__init__(parent, **kwargs)
        self._consumer: Any = parent
        self._host: Host | None = None
        queues = self._consumer.app.amqp.queues
        if SHARED_QUEUE in queues.consume_from:
            self._host = Host(self._consumer.hostname)
            own = self._host.queue
            queues.select_add(Queue(own, routing_key=own, no_ack=True))

    def start(self, parent: Consumer) -> None:
        """Open the sandbox host, now that the worker is connected."""
        if isinstance(self._consumer.pool, TaskPool):
            Consuming.hub = self._consumer.hub
            fair_turns.open_turns(self._consumer.pool.num_processes)
        if self._host is not None:
            threads = self._consumer.pool.num_processes
            self._host.open(threads, lambda: len(state.reserved_requests) < threads)
            self._leave_alone_while_unusable(self._host)

    def _leave_alone_while_unusable(self, host: Host) -> None:
        """Keep the worker from consuming hints that the host couldn't act on."""
        prefetch = self._consumer.task_consumer.channel.qos
        may_consume = prefetch.can_consume
        prefetch.can_consume = lambda: host.usable and may_consume()

    def stop(self, parent: Consumer) -> None:
        """Close the sandbox host, since the worker is stopping or has lost its connection."""
        if self._host is not None:
            self._host.close()

    terminate = stop


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
