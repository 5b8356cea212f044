"""`manage.py verify` finds changes made behind the server's back."""

import io
import threading
from collections.abc import Callable

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg import sql

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.privacy import redaction
from tests.integration.commits.conftest import trip
from tests.services import SERVICES
from workers import tasks


@pytest.fixture
def lived(live_database: str, user: MemoryUser, work: Callable[[], None]) -> MemoryUser:
    """A user with some messages, some trips and two versions."""
    for to in ("Rome", "Oslo"):
        drafts = [
            Draft(kind=EntryKind.RECORD, data=trip(to, key=to.lower())),
            Draft(kind=EntryKind.MESSAGE, content=f"I like {to}"),
        ]
        entry_log.append(user, drafts, source="test")
        work()
    user.refresh_from_db()
    assert user.head is not None
    assert user.head.version == 2
    return user


def tamper_with(database: str, statement: str) -> None:
    """Execute a statement as a superuser who has switched all triggers off."""
    url = SERVICES.postgres.superuser_url.rsplit("/", 1)[0] + f"/{database}"
    with psycopg.connect(url) as superuser:
        superuser.execute("SET session_replication_role = replica")
        cursor = superuser.execute(sql.SQL(statement))
        assert cursor.rowcount > 0
    connection.close()


def verify(*arguments: str) -> str:
    output = io.StringIO()
    try:
        call_command("verify", *arguments, stdout=output)
    except CommandError as error:
        output.write(f"FAILED ({error.returncode}): {error}")
    return output.getvalue()


def test_an_untouched_memory_verifies(lived: MemoryUser) -> None:
    assert verify() == "verified 1 users, 4 entries: 0 problems\n"


# What is done to the database → the problem that is found.
TAMPERED = {
    "UPDATE memory_logentry SET content = 'I like Bonn' WHERE seq = 2": "entry 2: its content",
    "UPDATE memory_logentry SET occurred_at = now() WHERE seq = 1": "entry 1: its hash",
    "UPDATE memory_logentry SET kind = 'fact' WHERE seq = 2": "entry 2: its hash",
    "UPDATE memory_logentry SET redacted_at = now(), content = 'forged' WHERE seq = 2": (
        "entry 2: it is redacted but still has content"
    ),
    "DELETE FROM memory_logentry WHERE seq = 2": "entry 2 is missing",
    "DELETE FROM memory_logentry WHERE seq = 4": "the log ends at entry 3",
    "UPDATE memory_logentry SET seq = 9 WHERE seq = 4": "entry 4 is missing",
    "INSERT INTO memory_entryoutcome (user_id, seq, outcome, reason, set_aside, decided_at)"
    " SELECT id, 9, 'covered', '', '{}', now() FROM memory_memoryuser": "an outcome for entry 9",
    "UPDATE memory_blob SET content = content || '#'": "the hash of its content is different",
    "DELETE FROM memory_blob WHERE content LIKE '%Oslo%'": "state.py is missing",
    "UPDATE memory_memoryuser SET head_id = (SELECT min(id) FROM memory_checkpoint)": (
        "the head is not the newest version"
    ),
    "UPDATE memory_recordlocation SET path = 'x.py'": "which does not exist",
}


@pytest.mark.parametrize(("statement", "problem"), TAMPERED.items())
def test_every_kind_of_tampering_is_found(
    lived: MemoryUser, live_database: str, statement: str, problem: str
) -> None:
    tamper_with(live_database, statement)

    report = verify()
    assert problem in report
    assert "FAILED (1)" in report


def test_verify_can_be_narrowed_and_fails_for_nobody(lived: MemoryUser) -> None:
    assert "verified 1 users" in verify("--user", "ada", "--workspace", lived.workspace.name)
    assert "FAILED (2): no user matches" in verify("--user", "nobody")


def test_a_server_that_goes_on_writing_is_not_accused(
    live_database: str, user: MemoryUser, work: Callable[[], None]
) -> None:
    stop = threading.Event()

    def write(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            drafts = [
                Draft(kind=EntryKind.RECORD, data=trip("Rome", key=f"{name}-{number}")),
                Draft(kind=EntryKind.MESSAGE, content="I like Rome"),
            ]
            (_, said) = entry_log.append(user, drafts, source="test")
            tasks.work("records", user.pk)
            if number % 5 == 0:
                redaction.redact(user, [said.seq], by="test", reason="")
                tasks.work("redactions", user.pk)
        connection.close()

    writers = [threading.Thread(target=write, args=[name]) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    try:
        reports = [verify() for _ in range(10)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()

    assert all(report.endswith(": 0 problems\n") for report in reports), reports
    assert len(set(reports)) > 3  # much was written meanwhile
    work()
    assert verify().endswith(": 0 problems\n")
