"""The database permits a redaction, and refuses any other change of the log to everybody."""

import datetime
from collections.abc import Callable

import pytest
import time_machine
from django.db import DatabaseError, connection, transaction

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import PAYLOAD_FIELDS, EntryKind, LogEntry
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions.models.checkpoints import Blob, Checkpoint
from tests.integration.commits.conftest import trip
from workers import tasks

pytestmark = pytest.mark.django_db

Settle = Callable[..., None]

FORBIDDEN = {
    "another content": "UPDATE memory_blob SET content = 'forged'",
    "no content and another hash": "UPDATE memory_blob SET content = NULL, hash = 'forged'",
    "another tree": "UPDATE memory_checkpoint SET tree = '{}'",
    "another version": "UPDATE memory_checkpoint SET version = 9",
    "no edits": "UPDATE memory_checkpoint SET edits = '[]'",
    "other edits": """
        UPDATE memory_checkpoint SET edits = '[{"op": "add", "sources": [9], "redacted": true}]'
    """,
    "words in an edit": """
        UPDATE memory_checkpoint
        SET edits = '[{"op": "add", "sources": [1], "redacted": true, "reason": "forged"}]'
    """,
    "a verdict": """
        UPDATE memory_checkpoint SET verdict = '{"accepted": true, "alerts": [], "checks": []}'
    """,
    "no version": "DELETE FROM memory_checkpoint",
    "an outline": "UPDATE memory_checkpoint SET outline = '{\"domains\": []}'",
}


@pytest.fixture
def checkpoint(user: MemoryUser) -> Settle:
    """Append typed entries and settle them."""

    def do(*statements: dict[str, object]) -> None:
        drafts = [Draft(kind=EntryKind.RECORD, data=statement) for statement in statements]
        entry_log.append(user, drafts, source="test")
        tasks.work("records", user.pk)

    return do


def refused(statement: str, reason: str = "immutable") -> bool:
    with (
        pytest.raises(DatabaseError, match=reason),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    return True


@pytest.mark.parametrize("what", FORBIDDEN)
def test_redaction_leaves_versions_unchanged(
    user: MemoryUser, checkpoint: Settle, what: str
) -> None:
    checkpoint(trip(key="a"))
    assert refused(FORBIDDEN[what])

    checkpoint({**trip(key="b"), "type": "Other"})
    redaction.redact(user, [2], by="test", reason="")
    assert refused(FORBIDDEN[what])
    assert list(problems(user)) == []


def test_user_without_a_redaction_loses_nothing(user: MemoryUser, checkpoint: Settle) -> None:
    checkpoint(trip(key="a"))

    assert refused("UPDATE memory_blob SET content = NULL")
    assert refused("UPDATE memory_checkpoint SET verdict = memory_redacted_verdict(verdict)")


def test_redacted_file_comes_back_unchanged_or_never(user: MemoryUser, checkpoint: Settle) -> None:
    checkpoint(trip(key="a"))
    redaction.redact(user, [1], by="test", reason="")
    blob = Blob.objects.exclude(content="").order_by("pk").first()
    assert blob is not None
    content = blob.content
    Blob.objects.filter(pk=blob.pk).update(content=None)

    assert refused(f"UPDATE memory_blob SET content = 'other' WHERE id = {blob.pk}")
    Blob.objects.filter(pk=blob.pk).update(content=content)

    assert list(problems(user)) == []


def test_verify_finds_redacted_file_in_newest_version(user: MemoryUser, checkpoint: Settle) -> None:
    checkpoint(trip(key="a"))
    redaction.redact(user, [1], by="test", reason="")
    head = Checkpoint.objects.get(user=user)
    Blob.objects.filter(user=user, hash=head.tree["domains/travel/state.py"]).update(content=None)

    assert list(map(str, problems(user))) == ["the newest version has a file that was redacted"]


def test_no_entry_is_redacted_before_it_was_recorded(user: MemoryUser) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content="hello")], source="test")
    empty = ", ".join(f"{name} = NULL" for name in (*PAYLOAD_FIELDS, "salt"))

    statement = f"UPDATE memory_logentry SET redacted_at = '1970-01-01', {empty}"
    assert refused(statement, "append-only")


def test_the_hash_of_a_key_stays_as_it_is_until_it_is_erased(user: MemoryUser) -> None:
    draft = Draft(kind=EntryKind.MESSAGE, content="hello", idempotency_key="k")
    entry_log.append(user, [draft], source="test")
    assert refused("UPDATE memory_logentry SET key_hash = NULL", "append-only")
    redaction.redact(user, [1], by="test", reason="")

    for forged in ("key_hash = '\\x00'", "key_hash = NULL, redacted_at = now() + '1 day'"):
        assert refused(f"UPDATE memory_logentry SET {forged} WHERE seq = 1", "append-only")
    assert entry_log.append(user, [draft], source="test")[0].seq == 1
    LogEntry.objects.filter(user=user, seq=1).update(key_hash=None)
    assert entry_log.append(user, [draft], source="test")[0].seq == 3
    assert refused("UPDATE memory_logentry SET key_hash = '\\x00' WHERE seq = 1", "append-only")


def test_a_redaction_is_taken_although_the_clock_was_set_back(user: MemoryUser) -> None:
    (entry,) = entry_log.append(
        user, [Draft(kind=EntryKind.MESSAGE, content="hello")], source="test"
    )

    with time_machine.travel(entry.recorded_at - datetime.timedelta(hours=1)):
        redaction.redact(user, [1], by="test", reason="")

    entry.refresh_from_db()
    assert entry.content is None
    assert entry.redacted_at == entry.recorded_at
