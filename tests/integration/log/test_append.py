"""The log: acknowledged entries are there, in order, once, and never change."""

import datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.users import LaneName, MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft, IdempotencyConflict
from memory.log.models.entries import PAYLOAD_FIELDS, EntryKind, LogEntry
from memory.operations.verification import problems

pytestmark = pytest.mark.django_db

PAYLOAD = dict.fromkeys((*PAYLOAD_FIELDS, "salt"))


def message(text: str, **fields: Any) -> Draft:
    return Draft(kind=EntryKind.MESSAGE, content=text, role="user", **fields)


def test_entries_are_numbered_from_one_in_the_order_given(user: MemoryUser) -> None:
    first = entry_log.append(user, [message("a"), message("b")], source="test")
    second = entry_log.append(user, [message("c")], source="test")

    assert [entry.seq for entry in (*first, *second)] == [1, 2, 3]
    assert [entry.content for entry in LogEntry.objects.filter(user=user)] == ["a", "b", "c"]
    assert list(problems(user)) == []


def test_a_failed_append_takes_no_number(user: MemoryUser) -> None:
    entry_log.append(user, [message("a", idempotency_key="k")], source="test")

    with pytest.raises(IdempotencyConflict):
        entry_log.append(
            user, [message("new"), message("other", idempotency_key="k")], source="test"
        )

    (next_one,) = entry_log.append(user, [message("b")], source="test")
    assert next_one.seq == 2
    assert not LogEntry.objects.filter(user=user, content="new").exists()


def test_an_idempotency_key_appends_once(user: MemoryUser) -> None:
    draft = message("a", idempotency_key="k", metadata={"b": 1, "a": 2})
    (first,) = entry_log.append(user, [draft], source="test")
    (again,) = entry_log.append(user, [draft], source="another key of the workspace")

    assert again.pk == first.pk
    assert LogEntry.objects.filter(user=user).count() == 1


def test_an_idempotency_key_outlives_the_secret_key(user: MemoryUser, settings: Settings) -> None:
    draft = message("a", idempotency_key="k")
    (first,) = entry_log.append(user, [draft], source="test")
    settings.SECRET_KEY = "another" * 10

    (again,) = entry_log.append(user, [draft], source="test")

    assert again.pk == first.pk


def test_an_idempotency_key_twice_in_one_request_appends_once(user: MemoryUser) -> None:
    draft = message("a", idempotency_key="k")

    first, second = entry_log.append(user, [draft, draft], source="test")

    assert first.seq == second.seq == 1
    assert LogEntry.objects.filter(user=user).count() == 1


@pytest.mark.parametrize(
    "other",
    [
        message("b", idempotency_key="k"),
        message("a", idempotency_key="k", session_id="s"),
        message("a", idempotency_key="k", metadata={}),
        message("a", idempotency_key="k", occurred_at=timezone.now()),
        Draft(kind=EntryKind.FACT, content="a", role="user", idempotency_key="k"),
    ],
)
def test_an_idempotency_key_with_another_body_is_refused(user: MemoryUser, other: Draft) -> None:
    entry_log.append(user, [message("a", idempotency_key="k")], source="test")

    with pytest.raises(IdempotencyConflict, match="entry 1"):
        entry_log.append(user, [other], source="test")


@pytest.mark.parametrize(
    "data",
    [
        {"n": 1e16},
        {"n": -0.0},
        {"n": 1.0},
        {"n": 2**70},
        {"n": 1e-7},
        {"text": "Ünïcode \U0001f600 \u2028", "b": None, "a": [True, {}]},
    ],
)
def test_data_comes_back_exactly(user: MemoryUser, data: dict[str, Any]) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")

    stored = LogEntry.objects.get(user=user).data
    assert repr(stored) == repr(data)
    assert list(problems(user)) == []


def test_kind_of_entry_decides_which_lane_is_due(
    user: MemoryUser,
) -> None:
    def due() -> set[str]:
        return set(user.lanes.filter(due_at__isnull=False).values_list("name", flat=True))

    entry_log.append(user, [message("a")], source="test")
    assert due() == {LaneName.STRUCTURE}

    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip"})], source="test")
    assert due() == {LaneName.STRUCTURE, LaneName.RECORDS}


REFUSED = {
    "changing content": "UPDATE memory_logentry SET content = 'other'",
    "changing the order": "UPDATE memory_logentry SET seq = seq + 10",
    "emptying without saying when": "UPDATE memory_logentry SET content = NULL",
    "redacting in part": "UPDATE memory_logentry SET content = NULL, redacted_at = now()",
    "deleting": "DELETE FROM memory_logentry",
    "truncating": "TRUNCATE memory_logentry CASCADE",
    "switching the trigger off": "ALTER TABLE memory_logentry DISABLE TRIGGER ALL",
    "skipping the trigger": "SET session_replication_role = replica",
    "dropping the table": "DROP TABLE memory_logentry CASCADE",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
def test_the_database_refuses_to_change_the_log(user: MemoryUser, statement: str) -> None:
    entry_log.append(user, [message("a")], source="test")

    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)

    assert LogEntry.objects.get(user=user).content == "a"
    assert list(problems(user)) == []


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_the_database_refuses_a_gap(user: MemoryUser, seq: int) -> None:
    (entry,) = entry_log.append(user, [message("a")], source="test")
    entry.pk, entry.seq = None, seq

    with pytest.raises(DatabaseError), transaction.atomic():
        entry.save(force_insert=True)

    assert LogEntry.objects.filter(user=user).count() == 1


def test_redaction_empties_payload_and_keeps_chain(
    user: MemoryUser,
) -> None:
    entry_log.append(user, [message("a"), message("secret"), message("c")], source="test")
    entry = LogEntry.objects.filter(user=user, seq=2)

    entry.update(**PAYLOAD, redacted_at=timezone.now())

    user.refresh_from_db()
    assert list(entry_log.broken_links(user)) == []
    with pytest.raises(DatabaseError), transaction.atomic():
        entry.update(redacted_at=timezone.now())


def test_a_redaction_cannot_change_anything_else(user: MemoryUser) -> None:
    entry_log.append(user, [message("a")], source="test")

    with pytest.raises(DatabaseError), transaction.atomic():
        LogEntry.objects.filter(user=user).update(
            **PAYLOAD, redacted_at=timezone.now(), occurred_at=timezone.now()
        )


def test_clock_set_back_keeps_the_order(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    found = []
    for seconds in (0, -1, 1):
        at = now + datetime.timedelta(seconds=seconds)
        monkeypatch.setattr(timezone, "now", lambda at=at: at)
        (entry,) = entry_log.append(user, [Draft(kind=EntryKind.FACT, content="x")], source="test")
        found.append((entry.occurred_at - now, entry.recorded_at - now))

    second = datetime.timedelta(seconds=1)
    nothing = second * 0
    assert found == [(nothing, nothing), (nothing, -second), (second, second)]
