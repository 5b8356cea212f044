"""Fixtures shared by all tests: a migrated database, seen with the privileges of the server."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection, connections
from django.test.utils import override_settings, setup_databases, teardown_databases
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.test import APIClient
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from memory import backtests, retrieval, runs
from memory.models import Lane, MemoryUser, Run, Workspace
from memory.models.runs import RunStatus
from memory.models.users import LaneName
from memory.users import create_user
from memory.workspace_constraints import unjudged
from memory.workspaces import create_key
from tests.services import SERVICES
from workers import tasks

# Whole servers have the machine to themselves but for one other test; an engine of the tests' own
# is started once.
TOGETHER = ("tests/acceptance/", "tests/integration/sandbox/")


class InOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Several processes (`pytest -n`) take file after file, or folder, as each gets done."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # what comes last is quick: they end together

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InOrder:
    """Have the tests distributed like that."""
    return InOrder(config, log)


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """As the owner create and migrate the test database, then become the runtime role."""
    with django_db_blocker.unblock():
        created = setup_databases(verbosity=0, interactive=False, aliases={"default": None})
    settings = connection.settings_dict
    owner = {name: settings[name] for name in ("USER", "PASSWORD")}
    runtime = urlsplit(SERVICES.postgres.runtime_url)
    with django_db_blocker.unblock():
        connection.close()
        settings.update(USER=runtime.username, PASSWORD=runtime.password)
        yield
        connection.close()
        settings.update(owner)
        teardown_databases(created, verbosity=0)


@pytest.fixture(scope="session", autouse=True)
def process_runner() -> Iterator[None]:
    """In this process sandboxes are processes, which every machine has.

    Whole servers use Docker where an engine answers; the sandboxes' own tests use both. None are
    kept ready: the tests of the pool have pools of their own.
    """
    nothing_kept = {"UAC_SANDBOX_POOL_MOST": 0, "UAC_SANDBOX_LEASE_SECONDS": 0.0}
    with override_settings(UAC_SANDBOX_RUNNER="process", **nothing_kept):
        yield


@pytest.fixture
def live_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A database of its own for a test that commits: a clone of the migrated one.

    Tables are never emptied between tests, because the log refuses it.
    """
    with cloned_database(django_db_blocker) as name:
        yield name


@contextmanager
def cloned_database(blocker: DjangoDbBlocker) -> Iterator[str]:
    """Work on a clone of the migrated database; yields its name."""
    settings = connection.settings_dict
    template = settings["NAME"]
    name = f"live_{uuid.uuid4().hex}"
    with blocker.unblock():
        connections.close_all()
        _as_owner("CREATE DATABASE {} TEMPLATE {}", name, template)
        settings["NAME"] = name
        try:
            yield name
        finally:
            connections.close_all()
            settings["NAME"] = template
            _drop(name)


def _drop(database: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            _as_owner("DROP DATABASE {} WITH (FORCE)", database)
        except psycopg.errors.InsufficientPrivilege:
            # The autovacuum is in it, which only a superuser can send away: it goes by itself.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _as_owner(statement: str, *names: str) -> None:
    with psycopg.connect(SERVICES.postgres.owner_url, autocommit=True) as owner:
        owner.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> Workspace:
    """A workspace, in the database of the test: that of `django_db`, or the live one."""
    if "live_database" in request.fixturenames:
        request.getfixturevalue("live_database")
    return Workspace.objects.create(name=f"workspace {uuid.uuid4().hex[:8]}")


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    """A user with an empty log."""
    return create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """A client of the API with a key of the workspace."""
    _, text = create_key(workspace, "tests")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return client


@pytest.fixture
def work() -> Callable[[], None]:
    """Do all the work that waits, as the workers would, in this process."""

    def until_idle() -> None:
        for _ in range(100):
            lanes = Lane.objects.filter(name=LaneName.RECORDS, due_at__isnull=False)
            unfinished = Run.objects.exclude(status=RunStatus.DONE)
            users = list(lanes.values_list("user_id", flat=True))
            waiting = list(unfinished.order_by("queued_at").values_list("pk", flat=True))
            versions = list(unjudged().values_list("pk", flat=True))
            tests = list(backtests.waiting().values_list("pk", flat=True))
            if not users and not waiting and not versions and not tests:
                return
            for version in versions:
                tasks.judge_workspace_constraint(str(version))
            for user in users:
                tasks.checkpoint_records(user)
            for run in waiting:
                tasks.execute_run(str(run))
            for test in tests:
                tasks.backtest(str(test))
        raise AssertionError("the work does not come to an end")

    return until_idle


@pytest.fixture
def sandbox_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a run does it."""

    def do(run: Run, seconds: float) -> None:
        tasks.execute_run(str(run.pk))
        run.refresh_from_db()

    monkeypatch.setattr(runs, "wait", do)


@pytest.fixture
def fields_of(user: MemoryUser) -> Callable[[str], dict[str, Any]]:
    """Return key → fields (typed JSON) of a collection `domain.name`, in order."""

    def do(name: str) -> dict[str, Any]:
        user.refresh_from_db()
        domain, _, collection = name.partition(".")
        found: dict[str, Any] = {}
        page: int | None = 1
        while page:
            result = retrieval.records(user.head, domain, collection, page)
            found |= {record["key"]: record["fields"] for record in result.records}
            page = result.next
        return found

    return do
