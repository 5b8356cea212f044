"""A worker as a sandbox host: it announces itself, has its own queue, and helps other hosts.

All hints for a user go to the same host's queue (`memory.kernel.work.hosts`). A host with a free
thread checks the other hosts' queues, and moves hints that have waited there too long to the shared
queue. So no work waits for a host that is busy, slow or dead while another host is idle. A host
whose engine doesn't respond reports this problem; until the engine responds again, the host takes
no work and is sent none.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog
from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from memory.kernel.work import hosts, leases
from memory.kernel.work.hints import HINT_SECONDS, redis_client
from memory.privacy import user_erasure
from workers.sandbox import metrics, runner

logger = structlog.get_logger(__name__)

# Seconds that a hint waits in a host's queue before other hosts may take it over.
UNCLAIMED_SECONDS = 0.05
# Maximum number of a queue's hints, oldest first, that are checked at a time.
MAX_HINTS = 100

Waiting = Mapping[str, Collection[bytes]]


class Host:
    """This process as a sandbox host, from `open` to `close`; it may be opened again after that."""

    def __init__(self, node_name: str) -> None:
        """Take the host's name from UAC_SANDBOX_HOST or, if that is empty, from the Celery node."""
        chosen = str(settings.UAC_SANDBOX_HOST) or node_name
        self.name = re.sub(r"[^A-Za-z0-9._@-]", "-", chosen)[:100]
        self._started_at = timezone.now()
        self._closing = threading.Event()
        self._problem = ""
        self._thread: threading.Thread | None = None

    @property
    def queue(self) -> str:
        """The name of this host's own queue."""
        return hosts.queue_of(self.name)

    @property
    def usable(self) -> bool:
        """False if sandboxes are known to be unavailable here: the host then takes no work."""
        return not self._problem

    def open(self, threads: int, is_free: Callable[[], bool]) -> None:
        """Start announcing the host; `is_free` returns whether one of its threads is idle."""
        hosts.own = self.name
        self._closing.clear()
        self._thread = threading.Thread(
            target=self._run, args=(threads, is_free), name="host", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Deregister the host: from now on, hints go to the other hosts."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, threads: int, is_free: Callable[[], bool]) -> None:
        beat_at = 0.0
        last_listed: dict[str, float] = {}  # other host → when it was last listed as live
        waiting: Waiting = {}
        pause = 0.0
        while not self._closing.wait(pause):
            now = time.monotonic()
            try:
                if now >= beat_at:
                    self._beat(threads)
                    beat_at = now + hosts.HEARTBEAT_SECONDS
                last_listed |= {host: now for host in hosts.live() if host != self.name}
                # After HINT_SECONDS, the hints sent to a host that is gone have expired.
                last_listed = {
                    host: at for host, at in last_listed.items() if now - at < HINT_SECONDS
                }
                helps = self.usable and is_free()
                waiting = take_over(map(hosts.queue_of, last_listed), waiting) if helps else {}
                pause = UNCLAIMED_SECONDS if last_listed else hosts.BELIEVED_SECONDS
            except Exception as error:  # any error: the heartbeat must continue
                logger.warning("host_out_of_touch", host=self.name, error=str(error))
                connection.close()
                pause = hosts.HEARTBEAT_SECONDS
        try:
            hosts.leave(self.name)
        except Error as error:
            logger.warning("host_not_signed_off", host=self.name, error=str(error))
        connection.close()

    def _beat(self, threads: int) -> None:
        requested = user_erasure.asked_of(self.name)
        # Call `forget` for every one of these users, even if work for the user is in progress,
        # during which sandboxes come and go.
        kept = [user for user in requested if not runner.forget(user) or leases.works_on(user)]
        user_erasure.kept_nothing(self.name, set(requested) - set(kept))
        problem = runner.problem()
        if problem and self.usable:
            logger.error("sandbox_host_takes_no_work", host=self.name, problem=problem)
        elif self._problem and not problem:
            logger.info("sandbox_host_works_again", host=self.name)
        self._problem = problem
        metrics.USABLE.set(self.usable)
        hosts.beat(
            self.name,
            started_at=self._started_at,
            threads=threads,
            report={
                **runner.report(),
                hosts.PROCESS: leases.process_name(),
                **({hosts.PROBLEM: problem} if problem else {}),
            },
        )


def take_over(queues: Iterable[str], before: Waiting) -> Waiting:
    """Move hints waiting since the last check to the shared queue; return those waiting now.

    A queue gives out its oldest hints first, so the oldest ones are moved: as many as have waited
    since the last check. If two hosts do this at the same time, more hints are moved than
    necessary, which is harmless.
    """
    names = list(queues)
    if not names:
        return {}
    with redis_client().pipeline(transaction=False) as look:
        for queue in names:
            look.lrange(queue, -MAX_HINTS, -1)
        waiting = dict(zip(names, map(frozenset, look.execute()), strict=True))
    with redis_client().pipeline(transaction=False) as move:
        for queue, hints in waiting.items():
            for _ in hints & frozenset(before.get(queue, ())):
                move.lmove(queue, hosts.SHARED_QUEUE, "RIGHT", "LEFT")
        move.execute()
    return waiting
