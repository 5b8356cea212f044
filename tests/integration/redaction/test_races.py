"""Redactions by several at a time, and by workers that are killed."""

import threading

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.log.models.redactions import Redaction
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions.models.checkpoints import Checkpoint
from tests.integration.redaction.conftest import MARKER, found
from tests.rivals import run_at_once, run_until_killed
from tests.waiting import eventually
from workers import tasks


def append(user: MemoryUser, key: str, name: str) -> int:
    data = {"domain": "health", "type": "Medication", "key": key, "data": {"name": name}}
    (entry,) = entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
    tasks.work("records", user.pk)
    return entry.seq


def test_asked_for_by_several_at_once_it_is_done_once(live_database: str, user: MemoryUser) -> None:
    append(user, "a", "Aspirin")
    secret = append(user, "b", MARKER)
    told: list[int] = []

    def ask() -> None:
        told.append(redaction.redact(user, [secret], by="test", reason="").seq)

    run_at_once(*[ask] * 4)
    run_at_once(*[lambda: tasks.work("redactions", user.pk)] * 4)

    assert set(told) == {3}
    assert LogEntry.objects.filter(user=user).count() == 3
    assert [row.version for row in Redaction.objects.all()] == [3]
    assert Checkpoint.objects.filter(user=user).count() == 3
    assert found() == []
    assert list(problems(user)) == []


def test_entries_appended_meanwhile_are_not_lost(live_database: str, user: MemoryUser) -> None:
    secret = append(user, "a", MARKER)
    redaction.redact(user, [secret], by="test", reason="")
    names = iter(["b", "c", "d"])
    lock = threading.Lock()

    def work() -> None:
        with lock:
            name = next(names, None)
        if name is None:
            tasks.work("redactions", user.pk)
        else:
            append(user, name, "Aspirin")

    run_at_once(*[work] * 4)
    tasks.work("redactions", user.pk)
    tasks.work("records", user.pk)

    assert found() == []
    assert entry_log.coverage(user).pending == 0
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
from memory.alerts import alert_redaction
from workers import tasks
def killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
alert_redaction.redact = killed  # the last but one thing of the transaction
tasks.work("redactions", int(sys.argv[1]))
"""


def test_redaction_of_killed_worker_is_finished(live_database: str, user: MemoryUser) -> None:
    append(user, "a", "Aspirin")
    secret = append(user, "b", MARKER)
    redaction.redact(user, [secret], by="test", reason="")

    run_until_killed(KILLED, user.pk)

    assert Checkpoint.objects.filter(user=user).count() == 2
    row = Redaction.objects.get(user=user)
    assert row.due_at is not None
    # His lease expires.
    Redaction.objects.update(lease_expires_at=None)

    def is_done() -> bool:
        tasks.work("redactions", user.pk)
        return not Redaction.objects.filter(due_at__isnull=False).exists()

    assert eventually(is_done)
    assert found() == []
    assert Checkpoint.objects.filter(user=user).count() == 3
    assert list(problems(user)) == []
