"""A database that takes too long: requests are refused cleanly, and work is given back."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings as configured
from django.db import OperationalError, connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.database import timeouts
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.workspaces import create_key
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations import alarms
from memory.recall.search import filters
from tests.services import SERVICES
from tests.waiting import scaled
from workers import tasks
from workers.service import dispatching

SECONDS = 0.3


@pytest.fixture
def held(live_database: str, user: MemoryUser, settings: Settings) -> Iterator[None]:
    """Give this process the limits of a web process, with a short limit for locks."""
    settings.UAC_WEB_STATEMENT_SECONDS = 60.0
    settings.UAC_WEB_LOCK_SECONDS = SECONDS
    settings.UAC_TRANSACTION_IDLE_SECONDS = 60.0
    with options_restored():
        hold()
        yield


@contextmanager
def options_restored() -> Iterator[dict[str, Any]]:
    """Yield the options of new connections; restore them in the end."""
    options = connections.settings["default"]["OPTIONS"]
    before = dict(options)
    try:
        yield options
    finally:
        connection.close()
        options.clear()
        options.update(before)


def hold() -> None:
    """Apply the settings of a web process from now on."""
    released()
    timeouts.hold_to("web")
    assert connections.settings["default"]["OPTIONS"]["options"]


def released() -> None:
    """Remove the time limits from now on: a busy machine may hold up anything for that long."""
    # A test that has loaded the web's application may have set them.
    connections.settings["default"]["OPTIONS"].pop("options", None)
    connection.close()


@contextmanager
def other(database_name: str, statement: str, *parameters: object) -> Iterator[None]:
    """Another transaction that has executed this, and is idle."""
    url = SERVICES.postgres.owner_url.rpartition("/")[0] + f"/{database_name}"
    with psycopg.connect(url) as rival:
        rival.execute(statement, parameters)
        yield
        rival.rollback()


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])
        (value,) = cursor.fetchone()
    return str(value)


LOCK = "SELECT 1 FROM memory_memoryuser WHERE id = %s FOR UPDATE"
ENTRY = {"entries": [{"kind": "message", "role": "user", "content": "Hello."}]}


def test_connections_have_the_limits_of_their_process(held: None) -> None:
    assert setting("statement_timeout") == "1min"
    assert setting("lock_timeout") == "300ms"
    assert setting("idle_in_transaction_session_timeout") == "1min"
    assert (setting("tcp_keepalives_idle"), setting("tcp_user_timeout")) == ("5", "10000")


def test_commands_of_the_operator_have_none(live_database: str) -> None:
    assert (setting("statement_timeout"), setting("lock_timeout")) == ("0", "0")


def test_a_pooler_gets_no_options(live_database: str, settings: Settings) -> None:
    settings.DATABASE_POOLER = "transaction"
    before = dict(connections.settings["default"]["OPTIONS"])

    timeouts.hold_to("worker")

    assert connections.settings["default"]["OPTIONS"] == before


def test_an_append_behind_a_lock_is_refused_and_nothing_is_written(
    held: None, live_database: str, user: MemoryUser, api: APIClient
) -> None:
    with other(live_database, LOCK, user.pk):
        answer = api.post("/v1/users/ada/entries/", ENTRY)

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer["Content-Type"] == "application/problem+json"
    assert "nothing was changed. Try again" in answer.json()["detail"]
    released()
    assert not LogEntry.objects.exists()
    assert api.post("/v1/users/ada/entries/", ENTRY).status_code == 202


@pytest.mark.parametrize("path", ["/v1/users/", "/v1/users/ada/entries/", "/v1/users/ada/"])
def test_a_read_that_takes_too_long_is_refused_with_what_to_do(
    held: None,
    live_database: str,
    user: MemoryUser,
    api: APIClient,
    settings: Settings,
    path: str,
) -> None:
    settings.UAC_WEB_LOCK_SECONDS = 60
    settings.UAC_WEB_STATEMENT_SECONDS = 3 * SECONDS
    hold()
    with other(live_database, "LOCK TABLE memory_memoryuser, memory_logentry"):
        answer = api.get(path)

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "more than 0.9 s" in answer.json()["detail"]
    released()
    assert api.get(path).status_code == 200


def test_a_search_whose_filter_takes_too_long_is_refused_with_what_to_do(
    held: None,
    user: MemoryUser,
    api: APIClient,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api.post("/v1/users/ada/entries/", ENTRY)
    settings.UAC_WEB_STATEMENT_SECONDS = SECONDS
    hold()
    slow = filters._ONCE.replace("OFFSET", "FROM pg_sleep(600) OFFSET")
    monkeypatch.setattr(filters, "_ONCE", slow)
    body = {"query": "hello", "filters": {"metadata.channel": "mail"}}
    answer = api.post("/v1/users/ada/search/", body)

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer["Content-Type"] == "application/problem+json"
    assert "more than 0.3 s" in answer.json()["detail"]
    assert "Narrow the filters, request smaller pages" in answer.json()["detail"]
    released()
    monkeypatch.undo()
    assert api.post("/v1/users/ada/search/", body).status_code == 200


def test_a_search_reads_no_longer_than_a_statement_may_take(
    held: None, user: MemoryUser, api: APIClient, settings: Settings
) -> None:
    # Given a filter that lets nothing through, so that group after group is read
    said = [{"kind": "message", "role": "user", "content": f"Hello {n}."} for n in range(100)]
    api.post("/v1/users/ada/entries/", {"entries": said})
    body = {"query": "hello", "filters": {"metadata.channel": "mail"}}
    groups = [read_groups(api, body)]
    # When time is up after the first, though each statement has time
    settings.UAC_WEB_STATEMENT_SECONDS = 1e-9
    groups.append(read_groups(api, body))
    assert groups == [(200, 3), (503, 1)]
    # But what is found in the first group is told
    assert read_groups(api, {**body, "filters": {"kind": "message"}}) == (200, 1)


def read_groups(api: APIClient, body: dict[str, Any]) -> tuple[int, int]:
    """Search; return the status, and the number of candidate groups that were read."""
    with CaptureQueriesContext(connection) as asked:
        status = api.post("/v1/users/ada/search/", body).status_code
    return status, sum("wanted (seq)" in query["sql"] for query in asked)


def test_mem0s_client_is_told_the_same(held: None, live_database: str, user: MemoryUser) -> None:
    messages = [{"role": "user", "content": "Hello."}]
    body = {"user_id": "ada", "messages": messages, "infer": False}
    _, key = create_key(user.workspace, "mem0")
    with other(live_database, LOCK, user.pk):
        api = APIClient(HTTP_AUTHORIZATION=f"Token {key}")
        answer = api.post("/mem0/v3/memories/add/", body)

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "Try again" in answer.json()["detail"]
    released()
    assert not LogEntry.objects.exists()


def test_a_page_of_the_admin_says_so_too(held: None, live_database: str) -> None:
    client = Client(raise_request_exception=False)
    with other(live_database, "LOCK TABLE django_session, auth_user"):
        answer = client.post("/admin/login/", {"login": "eve", "password": "secret"})

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert b"Try again" in answer.content


def test_a_database_that_is_gone_is_not_taken_for_a_fault_of_ours(
    live_database: str, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = APIClient(raise_request_exception=False)
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")

    answer = client.get("/v1/users/", HTTP_AUTHORIZATION="Bearer uac_123456789012_secret")

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer.json()["detail"].startswith("The database is not responding.")
    connection.close()


def test_a_database_that_takes_no_writes_is_not_taken_for_a_fault_of_ours(
    live_database: str, user: MemoryUser, workspace: Workspace
) -> None:
    _, key = create_key(workspace, "another")
    api = APIClient(raise_request_exception=False, HTTP_AUTHORIZATION=f"Bearer {key}")
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")

    answer = api.post("/v1/users/ada/entries/", {"kind": "message", "content": "x"})

    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "Try again" in answer.json()["detail"]
    assert not LogEntry.objects.exists()


def test_a_worker_that_runs_into_a_limit_has_the_work_done_later(
    held: None, live_database: str, user: MemoryUser, work: Callable[[], None]
) -> None:
    entry_log.append(
        user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip", "data": {}})], source="t"
    )
    lanes = Lane.objects.filter(user=user, name=LaneName.RECORDS)
    with other(live_database, LOCK, user.pk), pytest.raises(OperationalError):
        tasks.work("records", user.pk)
    released()
    lane = lanes.get()
    assert (lane.lease_owner, lane.attempts) == ("", 1)
    assert "lock timeout" in lane.last_error

    lanes.update(run_after=lane.due_at)
    work()

    assert lanes.get().due_at is None


def test_limited_step_blocks_no_other(held: None, live_database: str, user: MemoryUser) -> None:
    with (
        other(live_database, "LOCK TABLE memory_searchindex"),
        pytest.raises(OperationalError),
    ):
        dispatching.dispatch()

    released()
    # The last steps were taken, and the dispatcher counts as alive.
    assert alarms.silence(alarms.DISPATCHER) < 10
    connection.close()


def test_threads_share_a_pool_and_wait_for_it_no_longer_than_they_may(
    live_database: str, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_came = threading.Barrier(4)

    def asked(number: int) -> bool:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_stat_activity")
                assert cursor.fetchone()[0]
                all_came.wait(scaled(60))
                return True
        except OperationalError:
            all_came.wait(scaled(60))
            return False
        finally:
            connection.close()

    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    with options_restored() as options:
        options["pool"] = {"min_size": 2, "max_size": 2, "timeout": SECONDS}
        try:
            connection.pool.open(wait=True, timeout=scaled(60))  # type: ignore[attr-defined]
            with ThreadPoolExecutor(4) as threads:
                answered = list(threads.map(asked, range(4)))
        finally:
            connection.close_pool()  # type: ignore[attr-defined]

    assert sorted(answered) == [False, False, True, True]


def test_options_of_the_url_are_kept() -> None:
    options = configured.DATABASES["default"]["OPTIONS"]

    assert options["application_name"] == "uac"
    assert options["connect_timeout"] == 5
