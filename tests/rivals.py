"""Rivals that act at the same moment, and processes that kill themselves in the middle of work."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from django.db import connection

from tests.waiting import scaled


def run_at_once(*acts: Callable[[], object]) -> None:
    """Do all of this at the same moment, each in a thread with its own database connection."""
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        barrier.wait()
        act()
        connection.close()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
