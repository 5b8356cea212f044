"""A worker takes no more hints than it has free threads, and the next one as soon as one is."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from kombu.asynchronous import Hub, get_event_loop

from memory.hints import redis_client
from uac_site.celery import app
from workers.consuming import AGAIN_SECONDS

QUEUE = "consuming"
HINTS = 4

_go = threading.Event()
_done = threading.Semaphore(0)


@app.task(name="tests.consuming")
def task() -> None:
    _go.wait(60)
    _done.release()


@contextmanager
def worker() -> Iterator[None]:
    """A worker with one thread."""
    _go.clear()
    while _done.acquire(blocking=False):
        pass  # what an earlier test's tasks have released
    redis_client().delete(QUEUE)
    with start_worker(
        app,
        pool="threads",
        concurrency=1,
        queues=[QUEUE],
        perform_ping_check=False,
        shutdown_timeout=60,
    ):
        yield
        _go.set()


def send() -> None:
    for _ in range(HINTS):
        app.send_task("tests.consuming", queue=QUEUE)


def waiting() -> int:
    return int(redis_client().llen(QUEUE))


def test_what_no_thread_is_free_for_is_left_to_others() -> None:
    with worker():
        send()
        deadline = time.monotonic() + 60
        while waiting() == HINTS and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)  # time enough to take more

        assert waiting() == HINTS - 1


def test_the_next_hint_is_taken_as_soon_as_a_thread_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unprompted = threading.Event()
    fire_timers = Hub.fire_timers

    def seconds_to_sleep(hub: Hub, **options: Any) -> float:
        due_in = float(fire_timers(hub, **options))
        return 600.0 if unprompted.is_set() and due_in > AGAIN_SECONDS else due_in

    monkeypatch.setattr(Hub, "fire_timers", seconds_to_sleep)
    with worker():
        # From here on the worker's loop does not look for itself every second.
        unprompted.set()
        try:
            send()
            _go.set()
            for number in range(HINTS):
                assert _done.acquire(timeout=30), f"{number} of {HINTS} hints were taken"
        finally:
            unprompted.clear()
            hub = get_event_loop()
            assert hub is not None
            hub.call_soon(lambda: None)  # lest nothing stops the worker
