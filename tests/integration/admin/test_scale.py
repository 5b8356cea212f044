"""The staff's pages on a server with much data read only the rows that they show.

Lists are cut sooner, so that reading a whole table can be told from reading a page of it.
"""

from collections.abc import Iterator

import psycopg
import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.plugin import DjangoDbBlocker

from memory.kernel.admin import paging
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.models import StaffAccess
from memory.log.models.entries import LogEntry
from memory.versions.models.runs import Run
from tests.conftest import cloned_database
from tests.integration.admin.conftest import list_url, shown
from tests.integration.admin.filling import fill, pages, tidy, whole_tables
from tests.services import SERVICES

USERS, ENTRIES, RUNS = 12_000, 36_000, 12_000
# Maximum rows of a large table that may be scanned.
FEW = 1_000
STATEMENTS = 20


@pytest.fixture(scope="module")
def full(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The name of a separate database that is full of rows."""
    with cloned_database(django_db_blocker) as name:
        with django_db_blocker.unblock(), psycopg.connect(_owner_url(name)) as owner:
            # Earlier tests have used up ids, too, so that no id is a measure of anything.
            owner.execute(
                "SELECT setval(pg_get_serial_sequence('memory_memoryuser', 'id'), %s)", [USERS]
            )
            fill(owner, USERS, ENTRIES, RUNS)
        yield name


def _owner_url(name: str) -> str:
    server, _, _ = SERVICES.postgres.owner_url.rpartition("/")
    return f"{server}/{name}"


@pytest.fixture
def client(full: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Client]:
    """A member of the staff who may see everything, and whose permissions are checked."""
    with django_db_blocker.unblock():
        staff, _ = User.objects.get_or_create(username="eve", is_staff=True)
        staff.user_permissions.set(Permission.objects.all())
        StaffAccess.objects.get_or_create(user=staff, all_workspaces=True)
        client = Client()
        client.force_login(staff)
        yield client


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut lists after two hundred rows."""
    monkeypatch.setattr(paging, "MAX_ROWS", 200)


def test_there_is_much(client: Client) -> None:
    assert LogEntry.objects.count() >= ENTRIES
    assert MemoryUser.objects.count() == USERS
    assert Run.objects.count() == RUNS


def test_each_page_takes_few_statements_and_reads_no_large_table_whole(client: Client) -> None:
    looked: list[str] = []
    for name, address in pages():
        client.get(address)  # what is asked once for a process
        with CaptureQueriesContext(connection) as captured:
            response = client.get(address)
        assert response.status_code == 200, name
        statements = [str(one["sql"]) for one in captured.captured_queries]
        assert len(statements) <= STATEMENTS, (name, len(statements))
        assert whole_tables(statements, FEW) == [], name
        looked.append(name)
    lists = {name for name in looked if name.startswith("list: ")}
    assert len(lists) == sum(model._meta.app_label == "memory" for model in admin.site._registry)
    assert {f"one: {name}" for name in ("logentry", "checkpoint", "run", "alert")} <= {*looked}


def test_a_table_that_is_read_whole_is_found(client: Client) -> None:
    """The test above can fail."""
    for statement in (
        "SELECT count(*) FROM memory_logentry WHERE speaker = '50%'",
        "(SELECT id FROM memory_run ORDER BY stdout LIMIT 50)",
    ):
        assert len(whole_tables([statement], FEW)) == 1
    assert whole_tables(["SELECT id FROM memory_logentry LIMIT 50"], FEW) == []


def test_rows_are_filled_in_once_all_can_see_them(full: str) -> None:
    """Otherwise whole tables would be read if autovacuum happened to be at work on one."""
    with psycopg.connect(_owner_url(full)) as looking:
        looking.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        looking.execute("SELECT 1")
        with psycopg.connect(_owner_url(full), autocommit=True) as owner:
            owner.execute("UPDATE memory_memoryuser SET alerts_version = alerts_version")
            with pytest.raises(TimeoutError, match="memory_memoryuser"):
                tidy(owner, seconds=1)
            looking.rollback()
            tidy(owner)


def test_a_long_list_is_counted_as_far_as_it_can_be_turned_over(client: Client) -> None:
    response = client.get(list_url(LogEntry))

    assert response.context["cl"].result_count == 200
    assert "the first 200 log entries; use the filters to see more" in shown(response)
    assert client.get(f"{list_url(LogEntry)}?p=4").context["cl"].result_list


def test_nobody_acts_on_more_than_is_listed(client: Client) -> None:
    """A selection of all matching rows may be more than anybody has seen."""
    before = Run.objects.count()
    answer = client.post(
        list_url(LogEntry),
        {"action": "redact", "select_across": "1", "_selected_action": ["x"], "index": "0"},
        follow=True,
    )

    assert "Nothing was done: more rows match than can be listed." in shown(answer)
    assert Run.objects.count() == before
    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()
