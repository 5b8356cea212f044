"""A worker takes no more hints than it has free threads, and the next one when one is free."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pytest
from celery.contrib.testing.worker import start_worker
from kombu.asynchronous import Hub, get_event_loop

from memory.kernel.work.hints import redis_client, send_hint
from memory.kernel.work.kinds import KINDS, WorkKind
from tests.steps import not_none
from tests.waiting import eventually, scaled
from uac_site.celery import app
from workers.service import fair_turns
from workers.service.consuming import AGAIN_SECONDS, Consuming

# A worker that starts runs checks on the database.
pytestmark = pytest.mark.django_db

QUEUE = "consuming"
HINTS = 4

_go = threading.Event()
_done = threading.Semaphore(0)


_begun: list[str] = []


@app.task(name="workers.consuming")
def task(whose: str = "") -> None:
    _begun.append(whose)
    _go.wait(scaled(60))
    _done.release()


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> WorkKind:
    """A kind of work for which the task of this module is called."""
    kind = WorkKind(
        "consuming", "test", "default", "memory.log.lanes:due_with_records", "", key="user_id"
    )
    monkeypatch.setitem(cast("dict[str, WorkKind]", KINDS), kind.name, kind)
    return kind


def started(threads: int, queue: str) -> AbstractContextManager[Any]:
    return start_worker(
        app,
        pool="threads",
        concurrency=threads,
        queues=[queue],
        perform_ping_check=False,
        shutdown_timeout=scaled(60),
    )


@contextmanager
def worker(threads: int = 1, queue: str = QUEUE) -> Iterator[None]:
    """A worker with so many threads."""
    _go.clear()
    _begun.clear()
    while _done.acquire(blocking=False):
        pass  # what an earlier test's tasks have released
    redis_client().delete(queue)
    with started(threads, queue):
        yield
        _go.set()


def send() -> None:
    for _ in range(HINTS):
        app.send_task("workers.consuming", queue=QUEUE)


def waiting() -> int:
    return int(redis_client().llen(QUEUE))


def go_round(times: int) -> None:
    """Wait until the worker's loop has run so many times, with time to receive from Redis."""
    hub, done = Consuming.hub, threading.Event()
    assert hub is not None

    def again(left: int) -> None:
        if left:
            hub.call_later(0.01, again, left - 1)
        else:
            done.set()

    hub.call_soon(again, times)
    assert done.wait(scaled(60))


def test_hints_without_a_free_thread_are_left_to_other_workers() -> None:
    with worker():
        send()
        assert eventually(lambda: waiting() < HINTS)
        go_round(50)  # each time it could take one more

        assert waiting() == HINTS - 1


def test_free_thread_takes_the_next_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unprompted = threading.Event()
    fire_timers = Hub.fire_timers

    def seconds_to_sleep(hub: Hub, **options: Any) -> float:
        due_in = float(fire_timers(hub, **options))
        return 600.0 if unprompted.is_set() and due_in > AGAIN_SECONDS else due_in

    monkeypatch.setattr(Hub, "fire_timers", seconds_to_sleep)
    with worker():
        # From here on the worker's loop does not wake up by itself every second.
        unprompted.set()
        try:
            send()
            _go.set()
            for number in range(HINTS):
                assert _done.acquire(timeout=scaled(30)), f"{number} of {HINTS} hints were taken"
        finally:
            unprompted.clear()
            hub = not_none(get_event_loop())
            hub.call_soon(lambda: None)  # lest nothing stops the worker


def test_a_workspace_leaves_a_thread_to_others_and_what_is_held_is_done_later() -> None:
    with worker(threads=3, queue=app.conf.task_default_queue):
        # Given a workspace with more work than there are threads
        for number in range(HINTS):
            send_hint("consuming", f"much {number}", workspace_pk=1)
        assert eventually(lambda: len(_begun) == 2)
        assert eventually(lambda: len(hints_held()) == HINTS - 2)

        # When another one has some
        send_hint("consuming", "little", workspace_pk=2)

        # Then that is begun although nothing has ended
        assert eventually(lambda: "little" in _begun)
        assert len(_begun) == 3

        # And what was held is done when threads are free
        _go.set()
        for number in range(HINTS + 1):
            assert _done.acquire(timeout=scaled(30)), f"{number} of {HINTS + 1} hints were done"
        assert sorted(_begun) == ["little", *(f"much {number}" for number in range(HINTS))]


def hints_held() -> Sequence[fair_turns.Hint]:
    """Return the hints that the worker of this process holds."""
    return list(not_none(fair_turns._turns)._held)
