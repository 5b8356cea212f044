"""Rivals that act between two lines of somebody else's code."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from tests.waiting import eventually, scaled

Act = Callable[[], object]


@pytest.fixture
def just_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str, Act], None]:
    """Run something, once, in this thread, right before a function of a module is called.

    While it runs, and afterwards, the function is the original.
    """

    def arrange(module: object, name: str, act: Act) -> None:
        real = getattr(module, name)

        def acted(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(module, name, real)
            act()
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, acted)

    return arrange


class Rival(threading.Thread):
    """A rival with his own connection; an exception that he raised is in `error`."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self.act = act
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.act()
        except Exception as error:
            self.error = error
        finally:
            connection.close()

    def start_and_wait_for_end(self) -> None:
        """Start, and return when he is done: he must not wait for anybody."""
        self.start()
        self.join(scaled(60))
        assert not self.is_alive()

    def start_and_wait_for_lock(self) -> None:
        """Start, and return when he waits for a lock that somebody holds."""
        self.start()

        def stands_there() -> bool:
            waits = somebody_waits()
            assert waits or self.is_alive(), f"he had not to wait: {self.error!r}"
            return waits

        assert eventually(stands_there), "he does not wait for a lock"


def somebody_waits() -> bool:
    """Return whether somebody waits for a lock that this thread's connection holds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        (waiting,) = cursor.fetchone()
    return bool(waiting)


@contextmanager
def at_the_lock(act: Act) -> Iterator[Rival]:
    """Yield a rival to start when somebody holds the lock he needs; he ends with the context."""
    rival = Rival(act)
    try:
        yield rival
    finally:
        if rival.ident is not None:
            rival.join(scaled(60))
            assert not rival.is_alive()


def at_once(*acts: Act) -> list[Rival]:
    """Run all of it at the same time, each with its own connection."""
    gate = threading.Barrier(len(acts))
    rivals = [Rival(lambda act=act: (gate.wait(), act())) for act in acts]  # type: ignore[misc]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join(scaled(60))
        assert not rival.is_alive()
    return rivals
