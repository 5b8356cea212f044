"""Database connections are kept; one that has ended is noticed and replaced."""

import select
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from memory.kernel.models.users import Lane
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user, find_user
from memory.kernel.work import leases
from tests.services import SERVICES
from tests.waiting import scaled

SECONDS = 10


@pytest.fixture
def superuser() -> Iterator[psycopg.Connection]:
    with psycopg.connect(SERVICES.postgres.superuser_url, autocommit=True) as session:
        yield session


@pytest.fixture
def kept(live_database: str) -> int:
    """Return the backend process id of the session that an earlier request has left open."""
    return session_now()


def session_now() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def something_comes() -> None:
    assert connection.connection is not None
    poll = select.poll()
    poll.register(connection.connection.fileno(), select.POLLIN)
    assert poll.poll(scaled(SECONDS) * 1000)


def begin_request() -> None:
    connection.close_if_unusable_or_obsolete()


def last_asked(superuser: psycopg.Connection, pid: int) -> Any:
    row = superuser.execute("SELECT state_change FROM pg_stat_activity WHERE pid = %s", [pid])
    return row.fetchone()


def test_a_session_is_kept_without_asking_it(kept: int, superuser: psycopg.Connection) -> None:
    before = last_asked(superuser, kept)

    begin_request()
    connection.ensure_connection()
    assert connection.is_usable()

    assert last_asked(superuser, kept) == before
    assert session_now() == kept


def test_connection_ended_by_server_is_replaced(kept: int, superuser: psycopg.Connection) -> None:
    superuser.execute("SELECT pg_terminate_backend(%s)", [kept])
    something_comes()

    begin_request()

    assert session_now() != kept


def test_connection_found_dead_is_replaced(kept: int, superuser: psycopg.Connection) -> None:
    superuser.execute("SELECT pg_terminate_backend(%s)", [kept])
    something_comes()
    with pytest.raises(OperationalError):
        session_now()
    assert not connection.is_usable()

    begin_request()

    assert session_now() != kept


def test_connection_with_pending_notices_is_kept(kept: int, superuser: psycopg.Connection) -> None:
    with (
        psycopg.connect(
            SERVICES.postgres.superuser_url,
            dbname=connection.settings_dict["NAME"],
            autocommit=True,
        ) as other,
        connection.cursor() as cursor,
    ):
        cursor.execute("LISTEN something")
        other.execute("NOTIFY something")
    something_comes()

    begin_request()

    assert session_now() == kept


def test_migration_breaks_no_prepared_one(
    live_database: str, superuser: psycopg.Connection
) -> None:
    workspace = Workspace.objects.create(name="acme")
    user = create_user(workspace, "ada", metadata=None)
    work = Lane.objects.filter(user=user)

    def claimed() -> None:
        Lane.objects.update(lease_expires_at=None, run_after=timezone.now())
        assert find_user(workspace, "ada") == user
        assert leases.claim(work) is not None

    for _ in range(8):  # prepared after five
        claimed()
    with psycopg.connect(SERVICES.postgres.superuser_url, dbname=live_database) as other:
        for table in ("memory_memoryuser", "memory_lane"):
            other.execute(f"ALTER TABLE {table} ADD COLUMN later integer")

    claimed()
