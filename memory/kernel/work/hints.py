"""Wake-up hints: Redis messages saying that work is waiting or that a result is ready.

PostgreSQL holds the data and the work queue. Redis may lose everything at any time without any work
being lost: the dispatcher finds work that no hint has announced, and a waiting request that isn't
woken returns `202` with the result's URL.
"""

import functools
import math
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from memory.kernel import tracing
from memory.kernel.work.hosts import SHARED_QUEUE, route
from memory.kernel.work.kinds import KINDS

logger = structlog.get_logger(__name__)

# Seconds after which a hint is dropped; by then, the dispatcher has sent another one.
HINT_SECONDS = 10
# If Redis hangs, how many seconds a call may take beyond the requested wait.
PATIENCE_SECONDS = 2.0
# The same limit for requests that can do without a response from Redis.
QUICK_SECONDS = 0.25
# The maximum number of connections per process; no process has this many threads.
CONNECTIONS = 100
# Seconds to wait before reopening a closed connection.
RETRY_SECONDS = 0.02
_silent_until = 0.0
# How many seconds to keep a signal for a request that hasn't started waiting for it yet.
SIGNAL_SECONDS = 60


@functools.cache
def redis_client(wait_seconds: int = 0, patience: float | None = None) -> redis.Redis:
    """Return this process's client for commands that block for up to `wait_seconds`.

    Its connection pool is thread-safe and bounded: when it is exhausted, commands fail immediately.
    A closed connection is reopened once; a command that gets no response is not retried.
    """
    patience = PATIENCE_SECONDS if patience is None else patience
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=patience,
        socket_timeout=wait_seconds + patience,
        socket_keepalive=True,
        socket_keepalive_options=settings.REDIS_KEEPALIVE,
        health_check_interval=30,
        max_connections=CONNECTIONS,
        retry=Retry(ConstantBackoff(RETRY_SECONDS), 1, (redis.ConnectionError,)),
    )


def hint(
    kind: str,
    key: str | int,
    *,
    workspace_pk: int | None = None,
    user_pk: int | None = None,
    run_kind: str = "",
) -> None:
    """Wake a worker once the current transaction has committed; see `send_hint`."""
    owner = {"workspace_pk": workspace_pk, "user_pk": user_pk}
    transaction.on_commit(lambda: send_hint(kind, key, **owner, run_kind=run_kind), robust=True)


def send_hint(
    kind: str,
    key: str | int,
    *,
    workspace_pk: int | None = None,
    user_pk: int | None = None,
    run_kind: str = "",
) -> None:
    """Wake a worker now for work of a kind in `KINDS`; `key` says which piece of work.

    If a user is given, the user's sandbox host is woken, or else any worker for the kind.

    `run_kind` tells slow runs apart from fast ones. If the broker doesn't respond, this call is
    slow, but no work is lost. No more hints are then sent for a while, so that not every request
    has to wait for the timeout.
    """
    if _is_silent():
        return
    work_kind = KINDS[kind]
    owner = {"workspace": workspace_pk, "user": user_pk, "kind": run_kind}
    try:
        queue = work_kind.queue
        if user_pk is not None and queue == SHARED_QUEUE:
            queue = route(user_pk)
        current_app.send_task(
            work_kind.task,
            args=[key],
            queue=queue,
            expires=HINT_SECONDS,
            headers={**tracing.carried(), **owner},
        )
    except (OperationalError, redis.RedisError, OSError) as error:
        _be_silent()
        logger.warning("hint_not_sent", kind=kind, error=str(error))


def _is_silent() -> bool:
    """Return whether Redis failed recently, in which case we don't call it for a while."""
    return time.monotonic() < _silent_until


def _be_silent() -> None:
    global _silent_until
    _silent_until = time.monotonic() + HINT_SECONDS


def signal_done(run_id: uuid.UUID) -> None:
    """Wake any requests that are waiting for this run."""
    if _is_silent():
        return
    key = _done(run_id)
    try:
        with redis_client().pipeline() as pipeline:
            pipeline.lpush(key, "1")
            pipeline.expire(key, SIGNAL_SECONDS)
            pipeline.execute()
    except redis.RedisError as error:
        _be_silent()
        logger.warning("signal_not_sent", run=str(run_id), error=str(error))


def wait_done(run_id: uuid.UUID, seconds: float) -> None:
    """Wait up to `seconds` until the run is signalled as done or Redis fails."""
    key = _done(run_id)
    try:
        # Each signal wakes only one waiting request, so put the element back for any other waiting
        # requests.
        redis_client(math.ceil(seconds)).blmove(key, key, seconds)  # type: ignore[arg-type]
    except redis.RedisError as error:
        logger.warning("wait_failed", run=str(run_id), error=str(error))


def signal_events(workspace_pk: int) -> None:
    """Once the transaction commits, wake requests that are waiting for events in the workspace."""

    def publish() -> None:
        if _is_silent():
            return
        try:
            redis_client().publish(_events(workspace_pk), "1")
        except redis.RedisError as error:
            _be_silent()
            logger.warning("signal_not_sent", workspace=workspace_pk, error=str(error))

    transaction.on_commit(publish, robust=True)


@contextmanager
def events_signalled(workspace_pk: int | None = None) -> Iterator[Callable[[float], None]]:
    """Listen for a workspace's events (None: all events); yield a function that waits for an event.

    No signal sent after the block was entered is missed. If Redis fails, signals are lost, and the
    function waits for its full timeout.
    """
    with redis_client().pubsub(ignore_subscribe_messages=True) as listener:  # type: ignore[no-untyped-call]

        def wait(seconds: float) -> None:
            deadline = time.monotonic() + seconds
            try:
                while (left := deadline - time.monotonic()) > 0:
                    if listener.get_message(timeout=left) is not None:
                        return
            except redis.RedisError as error:
                logger.warning("wait_failed", workspace=workspace_pk, error=str(error))
                time.sleep(max(0.0, deadline - time.monotonic()))

        try:
            listener.psubscribe(_events("*" if workspace_pk is None else workspace_pk))
        except redis.RedisError as error:
            logger.warning("wait_failed", workspace=workspace_pk, error=str(error))
            yield time.sleep
        else:
            yield wait


def _events(workspace_pk: int | str) -> str:
    return f"events:{workspace_pk}"


def _done(run_id: uuid.UUID) -> str:
    return f"done:{run_id}"
