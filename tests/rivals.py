"""Rivals that act at the same moment, and processes that kill themselves in the middle of work."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection

from tests.waiting import eventually, scaled

Act = Callable[[], object]


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


def run_at_once(*acts: Act) -> None:
    """Run all of it at the same time; raise the first exception, if there is one."""
    for rival in at_once(*acts):
        if rival.error is not None:
            raise rival.error


def run_until_killed(code: str, *arguments: object) -> None:
    """Run code that kills its own process, on the database of the test."""
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    killed = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "DATABASE_URL": url},
        timeout=scaled(240),
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
