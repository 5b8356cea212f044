"""The log's partitions keep the guarantees of the whole table."""

import itertools
import re

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from tests.services import SERVICES

PARTITIONS = 8

pytestmark = pytest.mark.usefixtures("live_database")


@pytest.fixture
def people(workspace: Workspace) -> list[MemoryUser]:
    """Users with twenty entries each, enough of them for all partitions."""
    people = [
        create_user(workspace, f"person-{number}", time_zone="UTC", metadata=None)
        for number in range(160)
    ]
    drafts = [
        Draft(kind=EntryKind.MESSAGE, content=f"{number}", role="user") for number in range(20)
    ]
    for person in people:
        entry_log.append(person, drafts, source="test")
    return people


def partitions() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'memory_logentry'::regclass ORDER BY 1"
        )
        names = [name for (name,) in cursor.fetchall()]
    assert names
    return names


def plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join(line for (line,) in cursor.fetchall())


def execute_as_owner(statement: str) -> None:
    server, _, _ = SERVICES.postgres.owner_url.rpartition("/")
    with psycopg.connect(f"{server}/{connection.settings_dict['NAME']}") as owner:
        owner.execute(sql.SQL(statement))


def test_the_users_are_spread_over_all_partitions(people: list[MemoryUser]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableoid::regclass::text, count(DISTINCT user_id) FROM memory_logentry"
            " GROUP BY 1 ORDER BY 1"
        )
        counts = dict(cursor.fetchall())

    assert list(counts) == partitions()
    assert len(counts) == PARTITIONS
    assert sum(counts.values()) == len(people)


def test_a_query_about_one_user_reads_one_partition(people: list[MemoryUser]) -> None:
    [scan] = re.findall(
        r"Scan.* on \w+",
        plan(f"SELECT * FROM memory_logentry WHERE user_id = {people[0].pk} AND seq = 1"),
    )
    assert f"log_partitions.{scan.rpartition(' ')[2]}" in partitions()


def test_the_newest_entries_of_all_users_come_from_the_indexes(people: list[MemoryUser]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # the tables are small
        newest = plan("SELECT * FROM memory_logentry ORDER BY recorded_at DESC, seq DESC LIMIT 5")

    assert "Merge Append" in newest
    assert "Sort" not in newest.replace("Sort Key", "")


INSERT = (
    "INSERT INTO {{table}} (id, user_id, seq, kind, occurred_at, recorded_at, derived_from,"
    " payload_hash, hash) SELECT gen_random_uuid(), user_id, {}, 'message', now(), now(),"
    " '{{{{}}}}', '', '' FROM {{table}} GROUP BY user_id LIMIT 1"
)
STATEMENTS = {
    "changing": "UPDATE {table} SET content = 'other'",
    "deleting": "DELETE FROM {table}",
    "truncating": "TRUNCATE {table}",
    "a gap": INSERT.format("max(seq) + 2"),
    "a number twice": INSERT.format("max(seq)"),
}


def test_the_server_cannot_use_a_partition(people: list[MemoryUser]) -> None:
    for table, statement in itertools.product(partitions(), STATEMENTS.values()):
        with (
            pytest.raises(DatabaseError, match="permission denied") as caught,
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(table=table))
        assert getattr(caught.value.__cause__, "sqlstate", "") == "42501"


def test_owner_cannot_change_a_partition(people: list[MemoryUser]) -> None:
    refused = {
        name: {_refusal(statement.format(table=table)) for table in partitions()}
        for name, statement in STATEMENTS.items()
    }

    assert refused == {
        "changing": {"the log is append-only: UPDATE refused"},
        "deleting": {"the log is append-only: DELETE refused"},
        "truncating": {"the log is append-only: TRUNCATE refused"},
        "a gap": {"the log would have a gap"},
        "a number twice": {"duplicate key"},
    }
    assert LogEntry.objects.count() == 20 * len(people)


def _refusal(statement: str) -> str:
    with pytest.raises(psycopg.errors.IntegrityError) as caught:
        execute_as_owner(statement)
    message = str(caught.value).partition("\n")[0]
    if "duplicate key" in message:
        return "duplicate key"
    return re.sub(r"of user \d+ ", "", message)
