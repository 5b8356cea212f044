"""Redis: hints that work is waiting, and that a result is ready.

PostgreSQL is the record and the queue of record. Everything here may be lost at any moment without
losing work: the dispatcher finds what no hint has announced, and a waiting request that is not
woken answers `202` with the address of the result.
"""

import functools
import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

from memory.hosts import route

logger = structlog.get_logger(__name__)

# An older hint is dropped unheard: the dispatcher has given it again by then.
HINT_SECONDS = 10
# What a Redis that hangs may cost a request, beyond the wait that it asked for.
PATIENCE_SECONDS = 2.0
_silent_until = 0.0
# How long a signal waits for somebody who has not yet begun to wait for it.
SIGNAL_SECONDS = 60


@functools.cache
def redis_client(wait_seconds: int = 0) -> redis.Redis:
    """Return this process's client for commands that take up to `wait_seconds` by themselves.

    Its pool is safe to share between threads.
    """
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=PATIENCE_SECONDS,
        socket_timeout=wait_seconds + PATIENCE_SECONDS,
        socket_keepalive=True,
        health_check_interval=30,
        retry=None,
    )


def hint(task: str, *arguments: str | int, user_pk: int | None = None) -> None:
    """Tell the workers of work to do, once the current transaction has committed: see send_hint."""
    transaction.on_commit(lambda: send_hint(task, arguments, user_pk=user_pk), robust=True)


def send_hint(task: str, arguments: Sequence[str | int], *, user_pk: int | None = None) -> None:
    """Tell the workers now: the user's own sandbox host, if a user is named, else any that does it.

    A broker that does not answer costs time and loses nothing. After a failure no hint is sent for
    a moment, so that not every request pays that time.
    """
    global _silent_until
    if time.monotonic() < _silent_until:
        return
    try:
        queue = None if user_pk is None else route(user_pk)
        current_app.send_task(task, args=list(arguments), queue=queue, expires=HINT_SECONDS)
    except (OperationalError, redis.RedisError, OSError) as error:
        _silent_until = time.monotonic() + HINT_SECONDS
        logger.warning("hint_not_sent", task=task, error=str(error))


def signal_done(run_id: uuid.UUID) -> None:
    """Wake the request that waits for this run."""
    key = _done(run_id)
    try:
        with redis_client().pipeline() as pipeline:
            pipeline.lpush(key, "1")
            pipeline.expire(key, SIGNAL_SECONDS)
            pipeline.execute()
    except redis.RedisError as error:
        logger.warning("signal_not_sent", run=str(run_id), error=str(error))


def wait_done(run_id: uuid.UUID, seconds: float) -> None:
    """Wait until the run is signalled as done, for `seconds` at most, or until Redis fails."""
    key = _done(run_id)
    try:
        # It wakes one; there may be others, for whom it is put back.
        redis_client(math.ceil(seconds)).blmove(key, key, seconds)  # type: ignore[arg-type]
    except redis.RedisError as error:
        logger.warning("wait_failed", run=str(run_id), error=str(error))


def signal_events(workspace_pk: int) -> None:
    """Wake the requests that wait for events of the workspace, once the transaction commits."""

    def publish() -> None:
        try:
            redis_client().publish(_events(workspace_pk), "1")
        except redis.RedisError as error:
            logger.warning("signal_not_sent", workspace=workspace_pk, error=str(error))

    transaction.on_commit(publish, robust=True)


@contextmanager
def events_signalled(workspace_pk: int) -> Iterator[Callable[[float], None]]:
    """Listen for events of the workspace; yields a function that waits for some, for so long.

    What is signalled from the beginning of the block on is heard. A Redis that fails costs the
    signal, not the wait.
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
            listener.subscribe(_events(workspace_pk))
        except redis.RedisError as error:
            logger.warning("wait_failed", workspace=workspace_pk, error=str(error))
            yield time.sleep
        else:
            yield wait


def _events(workspace_pk: int) -> str:
    return f"events:{workspace_pk}"


def _done(run_id: uuid.UUID) -> str:
    return f"done:{run_id}"
