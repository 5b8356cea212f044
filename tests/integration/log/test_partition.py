"""The log is partitioned while others write, keeps its guarantees, and is converted back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from memory import log
from memory.database import partitioning
from memory.log import Draft
from memory.models import LogEntry, MemoryUser, Workspace
from memory.models.log import EntryKind
from memory.operations.verification import problems
from memory.privacy.redaction import redact
from memory.users import create_user
from tests.rivals import Rival
from tests.services import SERVICES
from tests.waiting import eventually

# Other people's entries: their hashes are random, and one person has a fifth of them all.
PEOPLE = """
INSERT INTO memory_memoryuser (public_id, workspace_id, user_id, time_zone, metadata, created_at,
    last_seq, last_hash, log_bytes, alerts_version)
SELECT gen_random_uuid(), (SELECT min(id) FROM memory_workspace), 'filled-' || n, 'UTC', '{}',
    now(), CASE n WHEN 1 THEN 4000 ELSE 160 END, decode(repeat('00', 32), 'hex'), 0, 0
FROM generate_series(1, 100) n
"""
ENTRIES = """
INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at, recorded_at, derived_from,
    content, session_id, role, source, salt, payload_hash, hash)
SELECT gen_random_uuid(), users.id, seq, 'message', at, at, '{}', repeat('Rome, 3rd of May. ', 9),
    's', 'user', 'filling', decode(repeat('00', 16), 'hex'), sha256(int8send(seq)),
    sha256(int8send(users.id + seq))
FROM memory_memoryuser AS users
CROSS JOIN LATERAL generate_series(1, last_seq) AS seq
CROSS JOIN LATERAL (SELECT now() - interval '365 days' + seq * interval '2 hours' AS at) AS made
WHERE users.user_id LIKE 'filled-%'
ORDER BY seq, users.id
"""


def as_owner(what: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function on Django's connection as the role that owns the tables."""
    address, settings = urlsplit(SERVICES.postgres.owner_url), connection.settings_dict
    before = {name: settings[name] for name in ("USER", "PASSWORD")}
    connection.close()
    settings.update(USER=address.username, PASSWORD=address.password)
    try:
        return what(*arguments)
    finally:
        connection.close()
        settings.update(before)


def fill() -> None:
    with connection.cursor() as cursor:
        cursor.execute(PEOPLE)
        cursor.execute(ENTRIES)
        cursor.execute("VACUUM (ANALYZE) memory_logentry")


@pytest.fixture
def owner(live_database: str) -> Callable[..., Any]:
    """Execute statements as the role that owns the tables."""
    return as_owner


@pytest.fixture
def people(workspace: Workspace, owner: Callable[..., Any]) -> list[MemoryUser]:
    """Users whose logs verify, among many others."""
    people = [
        create_user(workspace, f"person-{number}", time_zone="UTC", metadata=None)
        for number in range(8)
    ]
    owner(fill)
    for person in people:
        log.append(person, [said(f"{number}") for number in range(20)], source="test")
    return people


def said(text: str, **fields: Any) -> Draft:
    return Draft(kind=EntryKind.MESSAGE, content=text, role="user", **fields)


def plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join(line for (line,) in cursor.fetchall())


@contextmanager
def writing(people: list[MemoryUser]) -> Iterator[list[str]]:
    """Have a thread append to all logs, one after another, on one connection that it keeps."""
    stop = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stop.is_set():
            for person in people:
                log.append(person, [said("meanwhile")], source="test")
                written.append(person.user_id)

    # The thread has its own connection: this test's thread sometimes uses the owner's.
    writer = Rival(write)
    writer.start()
    assert eventually(lambda: writer.error or len(written) > 1)
    try:
        yield written
    finally:
        stop.set()
        writer.join()
    assert writer.error is None


def assert_all_is_well(people: list[MemoryUser], entries: int) -> None:
    assert LogEntry.objects.count() == entries
    for person in people:
        assert [str(one) for one in problems(person)] == []


REFUSED = {
    "changing": "UPDATE memory_logentry SET content = 'other'",
    "deleting": "DELETE FROM memory_logentry",
    "a gap": "INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at, recorded_at,"
    " derived_from, payload_hash, hash) SELECT gen_random_uuid(), user_id, max(seq) + 2, 'message',"
    " now(), now(), '{}', '', '' FROM memory_logentry GROUP BY user_id LIMIT 1",
    "a number twice": "INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at,"
    " recorded_at, derived_from, payload_hash, hash) SELECT gen_random_uuid(), user_id, seq, kind,"
    " now(), now(), '{}', '', '' FROM memory_logentry LIMIT 1",
    "nobody's entry": "INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at,"
    " recorded_at, derived_from, payload_hash, hash) VALUES (gen_random_uuid(), -1, 1, 'message',"
    " now(), now(), '{}', '', ''); SET CONSTRAINTS ALL IMMEDIATE",
    "truncating": "TRUNCATE memory_logentry",
    "a partition of its own": "SELECT FROM log_partitions.memory_logentry_00",
}


def refusals() -> dict[str, str]:
    """Return the errors that the server's role gets."""
    found = {}
    for name, statement in REFUSED.items():
        with (
            pytest.raises(DatabaseError) as caught,
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
        found[name] = getattr(caught.value.__cause__, "sqlstate", "")
    return found


def catalogue(relation: str) -> dict[str, Any]:
    """Return a table's constraints, triggers, privileges and indexes."""
    queries = {
        "triggers": "SELECT tgname, tgtype, tgfoid::regproc::text FROM pg_trigger"
        " WHERE tgrelid = %s::regclass AND NOT tgisinternal AND tgname <> 'note_redaction'",
        "privileges": "SELECT grantee::regrole::text, privilege_type FROM pg_class,"
        " aclexplode(relacl) WHERE oid = %s::regclass AND grantee <> relowner",
        "constraints": "SELECT conname, contype::text FROM pg_constraint"
        " WHERE conrelid = %s::regclass AND contype <> 't'",
        "indexes": "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
        " WHERE indrelid = %s::regclass",
    }
    found = {}
    with connection.cursor() as cursor:
        for name, query in queries.items():
            cursor.execute(query, [relation])
            found[name] = set(cursor.fetchall())
    return found


def test_the_log_is_cut_and_put_together_again_while_others_write(
    people: list[MemoryUser], owner: Callable[..., Any]
) -> None:
    before = catalogue("memory_logentry")
    refused = refusals()
    entries = LogEntry.objects.count()

    with writing(people) as written:
        owner(partitioning.prepare, 4)
        owner(partitioning.copy)
        # Rows that were already copied change after that.
        log.append(people[0], [said("secret", idempotency_key="k")], source="test")
        redact(people[0], [3], by="test", reason="")
        owner(partitioning.copy)
        assert owner(partitioning.differences) == 0
        redact(people[1], [4], by="test", reason="")
        owner(partitioning.swap)
        after_swap = len(written)
        assert eventually(lambda: len(written) > after_swap + 8)
    # Two redactions are entries, too, and so is the message outside of the thread.
    entries += len(written) + 3

    assert owner(partitioning.state).partitioned
    assert_all_is_well(people, entries)
    for person, seq in ((people[0], 3), (people[1], 4)):
        assert LogEntry.objects.get(user=person, seq=seq).content is None
    assert catalogue("memory_logentry") == before
    assert refusals() == {**refused, "a partition of its own": "42501"}
    # One user is in one partition, and the newest of all come from the index of each.
    of_one = plan(f"SELECT * FROM memory_logentry WHERE user_id = {people[0].pk} AND seq = 1")
    assert of_one.count("Scan") == 1
    assert "memory_logentry_0" in of_one
    newest = plan("SELECT * FROM memory_logentry ORDER BY recorded_at DESC, seq DESC LIMIT 5")
    assert "Merge Append" in newest
    assert "Sort" not in newest.replace("Sort Key", "")
    (again,) = log.append(people[0], [said("secret", idempotency_key="k")], source="test")
    assert LogEntry.objects.get(pk=again.pk).content == "secret"

    with writing(people) as written:
        redact(people[2], [5], by="test", reason="")
        owner(partitioning.copy)
        owner(partitioning.swap)
    owner(partitioning.finish)

    assert owner(partitioning.state) == partitioning.PartitionProgress(False, None, 0)
    assert_all_is_well(people, entries + len(written) + 1)
    assert catalogue("memory_logentry") == before
    assert refusals() == refused


def test_the_spare_is_thrown_away_and_the_partitions_stay(
    people: list[MemoryUser], owner: Callable[..., Any]
) -> None:
    owner(partitioning.prepare, 2)
    with pytest.raises(partitioning.NotNow, match="already"):
        owner(partitioning.prepare, 2)
    owner(partitioning.copy)
    owner(partitioning.swap)
    owner(partitioning.finish)

    log.append(people[0], [said("more")], source="test")
    assert owner(partitioning.state) == partitioning.PartitionProgress(True, None, 0)
    assert [str(one) for one in problems(people[0])] == []
    with pytest.raises(partitioning.NotNow, match="prepare"):
        owner(partitioning.swap)


def test_a_swap_waits_for_a_long_reader_without_stopping_the_others(
    people: list[MemoryUser], owner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner(partitioning.prepare, 2)
    owner(partitioning.copy)
    monkeypatch.setattr(partitioning, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(partitioning, "ATTEMPTS", 2)
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT FROM memory_logentry LIMIT 1")
        with pytest.raises(partitioning.NotNow, match="pg_stat_activity"):
            owner(partitioning.swap)

    assert not owner(partitioning.state).partitioned
    log.append(people[0], [said("goes on")], source="test")
