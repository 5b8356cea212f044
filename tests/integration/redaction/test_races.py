"""Redactions by several at a time, and by workers that are killed."""

import os
import signal
import subprocess
import sys
import threading

from django.db import connection

from memory import log
from memory.log import Draft
from memory.models import Checkpoint, LogEntry, MemoryUser, Redaction
from memory.models.log import EntryKind
from memory.operations.verification import problems
from memory.privacy import redaction
from tests.integration.redaction.conftest import MARKER, found
from tests.waiting import eventually, scaled
from workers import tasks


def append(user: MemoryUser, key: str, name: str) -> int:
    data = {"domain": "health", "type": "Medication", "key": key, "data": {"name": name}}
    (entry,) = log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
    tasks.checkpoint_records(user.pk)
    return entry.seq


def at_once(number: int, do: object) -> None:
    barrier = threading.Barrier(number)

    def run() -> None:
        barrier.wait()
        do()  # type: ignore[operator]
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_asked_for_by_several_at_once_it_is_done_once(live_database: str, user: MemoryUser) -> None:
    append(user, "a", "Aspirin")
    secret = append(user, "b", MARKER)
    told: list[int] = []

    at_once(4, lambda: told.append(redaction.redact(user, [secret], by="test", reason="").seq))
    at_once(4, lambda: tasks.redact(user.pk))

    assert set(told) == {3}
    assert LogEntry.objects.filter(user=user).count() == 3
    assert [row.version for row in Redaction.objects.all()] == [3]
    assert Checkpoint.objects.filter(user=user).count() == 3
    assert found() == []
    assert list(problems(user)) == []


def test_entries_that_come_in_at_the_same_time_are_not_lost(
    live_database: str, user: MemoryUser
) -> None:
    secret = append(user, "a", MARKER)
    redaction.redact(user, [secret], by="test", reason="")
    names = iter(["b", "c", "d"])
    lock = threading.Lock()

    def work() -> None:
        with lock:
            name = next(names, None)
        if name is None:
            tasks.redact(user.pk)
        else:
            append(user, name, "Aspirin")

    at_once(4, work)
    tasks.redact(user.pk)
    tasks.checkpoint_records(user.pk)

    assert found() == []
    assert log.coverage(user).pending == 0
    user.refresh_from_db()
    assert user.head is not None
    [domain] = user.head.outline["domains"]
    assert domain["collections"][0]["shards"][0][1] == 3
    assert list(problems(user)) == []


KILLED = """
import os, signal, sys
import django
django.setup()
from django.conf import settings
settings.UAC_SANDBOX_RUNNER = "process"
from memory.alerting import alert_redaction
from workers import tasks
def killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
alert_redaction.redact = killed  # the last but one thing of the transaction
tasks.redact(int(sys.argv[1]))
"""


def test_a_worker_that_is_killed_leaves_what_another_one_finishes(
    live_database: str, user: MemoryUser
) -> None:
    append(user, "a", "Aspirin")
    secret = append(user, "b", MARKER)
    redaction.redact(user, [secret], by="test", reason="")
    settings = connection.settings_dict
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**settings)

    worker = subprocess.run(
        [sys.executable, "-c", KILLED, str(user.pk)],
        env={**os.environ, "DATABASE_URL": url},
        timeout=scaled(240),
        check=False,
    )

    assert worker.returncode == -signal.SIGKILL
    assert Checkpoint.objects.filter(user=user).count() == 2
    row = Redaction.objects.get(user=user)
    assert row.due_at is not None
    # His lease expires.
    Redaction.objects.update(lease_expires_at=None)

    def is_done() -> bool:
        tasks.redact(user.pk)
        return not Redaction.objects.filter(due_at__isnull=False).exists()

    assert eventually(is_done)
    assert found() == []
    assert Checkpoint.objects.filter(user=user).count() == 3
    assert list(problems(user)) == []
