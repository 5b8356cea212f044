"""Fixtures shared by all tests: a migrated database, used with the privileges of the server."""

import functools
import gc
import importlib
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import hypothesis
import psycopg
import pytest
from django.apps import apps
from django.conf import settings as server
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections, transaction
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.test.utils import override_settings, setup_databases, teardown_databases
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker, blocking_manager_key
from rest_framework.test import APIClient
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from memory.constraints import backtests
from memory.constraints.workspace_constraints import unjudged
from memory.kernel.admission import quotas, rates, refusals, slots
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.kernel.work import hints, hosts
from memory.kernel.workspaces import create_key
from memory.privacy import redaction, retention
from memory.recall import retrieval
from memory.versions import runs
from memory.versions.models.runs import Run, RunStatus
from tests.properties import examples
from tests.quarantine import QUARANTINED
from tests.services import SERVICES, TEMPLATE, become_template
from tests.slots import free_slots
from tests.tiers import (
    ROTATING,
    ROTATION,
    holds_extended_only,
    is_extended,
    named,
    rows_left_out,
    turn,
)
from tests.waiting import scaled
from workers import tasks
from workers.gate import type_errors
from workers.typecheck.checker import TypeFault, check_types

# Assertions in shared helpers show the compared values, too.
pytest.register_assert_rewrite("tests.rivals", "tests.sandbox_hosts", "tests.steps", "tests.system")

# No example is too slow, since the machine may be busy. In CI, Hypothesis uses its own profile:
# everybody gets the same examples, and none from a database.
hypothesis.settings.register_profile(
    "patient",
    hypothesis.settings.get_profile("ci" if os.environ.get("CI") else "default"),
    deadline=None,
    max_examples=examples(35),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

# Files that one process runs, test after test: no more than two whole servers run at a time, and an
# engine of the tests' own is started once.
TOGETHER = {
    "tests/acceptance/mcp/": "agents, chaos and deployment",
    "tests/acceptance/": "acceptance",
    "tests/benchmarks/": "agents, chaos and deployment",
    "tests/chaos/": "agents, chaos and deployment",
    "tests/deployment/": "agents, chaos and deployment",
    # These share an engine of the tests' own.
    "tests/integration/sandbox/test_docker": "sandbox",
    "tests/integration/sandbox/test_doctor": "sandbox",
    "tests/integration/sandbox/test_runtimes": "sandbox",
    "tests/smoke/": "agents, chaos and deployment",
}


def pytest_report_header() -> str:
    """Say which of the rotating tests take their turn; processes of `pytest -n` inherit it."""
    return f"rotating tests: turn {turn()} of {ROTATION} (UAC_TEST_TURN)"


class InOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Several processes (`pytest -n`) take file after file, or folder, as each becomes free."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # what comes last is quick: they end together

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(test: str) -> str:
    """Return the unit that a process takes as a whole: a folder's name, or a file."""
    scopes = (scope for folder, scope in TOGETHER.items() if test.startswith(folder))
    return next(scopes, test.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InOrder:
    """Distribute the tests in this order."""
    return InOrder(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing second-tier files if they are left out: each process would import them."""
    if leaves_out_extended(config):
        path = collection_path.relative_to(config.rootpath).as_posix()
        if holds_extended_only(f"{path}/" if collection_path.is_dir() else path, turn()):
            return True
    return None  # let others decide


def leaves_out_extended(config: pytest.Config) -> bool:
    """Return whether this session selects the first tier alone, as `make test` does."""
    return "not extended" in config.option.markexpr


# Ids in the quarantine or in tiers.py without a test; only known if all tests are collected.
UNKNOWN = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Mark the second tier and quarantined tests, before anything is selected by that.

    The units that one process takes as a whole come first, after pytest-django has sorted, so that
    the other processes do not wait for them in the end.
    """
    found = set()
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        rows[item.nodeid.partition("[")[0]].append(item.nodeid)
    left_out = {row for test in rows for row in rows_left_out(test, rows[test], turn())}
    for item in items:
        if item.nodeid in left_out or is_extended(item.nodeid, turn()):
            item.add_marker(pytest.mark.extended)
        for node_id in {item.nodeid, item.nodeid.partition("[")[0]} & QUARANTINED.keys():
            found.add(node_id)
            item.add_marker(pytest.mark.quarantine)
    if _all_are_collected(config):
        tests = [item.nodeid for item in items]
        unused = [one for one in named() if not any(test.startswith(one) for test in tests)]
        unknown = sorted(QUARANTINED.keys() - found) + unused
        config.stash[UNKNOWN] = [one for one in unknown if not _was_ignored(config, one)]
    yield
    items.sort(key=lambda item: scope_of(item.nodeid) not in TOGETHER.values())


def _was_ignored(config: pytest.Config, test: str) -> bool:
    path = test.partition("::")[0]
    return (
        leaves_out_extended(config)
        and (holds_extended_only(path, turn()) or path in ROTATING)
        and (config.rootpath / path).exists()
    )


def _all_are_collected(config: pytest.Config) -> bool:
    asked = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
    left_out = config.option.ignore or config.option.ignore_glob
    return not left_out and bool(asked & {config.rootpath, config.rootpath / "tests"})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Migrate the test database once: every process starts with a copy of it."""
    with config.stash[blocking_manager_key].unblock():
        setup_databases(verbosity=0, interactive=False, aliases={"default": None})
        connection.close()
    become_template()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Split work among the processes that each would do: rewriting the assertions of every test.

    Each imports some of the files first, and then finds the others' compiled. Collected tests stay
    until the end, so the garbage collector need not scan them again and again.
    """
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:
        number = int(worker["workerid"].removeprefix("gw"))
        for file in _test_files(session.config)[number :: worker["workercount"]]:
            with suppress(Exception, pytest.skip.Exception):  # collection will say so
                importlib.import_module(".".join(file.with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def _test_files(config: pytest.Config) -> list[Path]:
    """Return the test files that this session collects, relative to the checkout."""
    files: set[Path] = set()
    for argument in config.args:
        asked = config.invocation_params.dir / argument.partition("::")[0]
        files.update(asked.rglob("test_*.py") if asked.is_dir() else [asked])
    found = sorted(file.resolve().relative_to(config.rootpath) for file in files)
    if leaves_out_extended(config):
        found = [file for file in found if not holds_extended_only(file.as_posix(), turn())]
    return found


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Create and migrate the test database as its owner, then become the runtime role."""
    settings = connection.settings_dict
    with django_db_blocker.unblock():
        if TEMPLATE in os.environ:  # it is there already
            created = []
            connection.close()
            settings["NAME"] = f"{TEST_DATABASE_PREFIX}{settings['NAME']}"
            ContentType.objects.get_for_models(*apps.get_models())  # as migrating would remember
        else:
            created = setup_databases(verbosity=0, interactive=False, aliases={"default": None})
    owner = {name: settings[name] for name in ("USER", "PASSWORD")}
    runtime = urlsplit(SERVICES.postgres.runtime_url)
    with django_db_blocker.unblock():
        connection.close()
        settings.update(USER=runtime.username, PASSWORD=runtime.password)
        yield
        connection.close()
        settings.update(owner)
        teardown_databases(created, verbosity=0)


# Ample limits: a sandbox must not be stopped because a busy machine left it without a processor.
AMPLE: Mapping[str, float] = {
    "UAC_SANDBOX_WALL_SECONDS": 30.0,
    "UAC_SANDBOX_CPU_SECONDS": 30,
    "UAC_SANDBOX_TOTAL_SECONDS": 90.0,
}
AS_DELIVERED: Mapping[str, float] = {
    "UAC_SANDBOX_WALL_SECONDS": 5.0,
    "UAC_SANDBOX_CPU_SECONDS": 5,
    "UAC_SANDBOX_TOTAL_SECONDS": 30.0,
}


# Limits of a test with code that never ends. Where other code runs under the same limit and must
# finish, it gets a little more, since a busy machine holds it up.
ENDLESS_ALONE: Mapping[str, float] = {"UAC_SANDBOX_WALL_SECONDS": 0.5}
ENDLESS_AMONG_OTHERS: Mapping[str, float] = {"UAC_SANDBOX_WALL_SECONDS": 1.5}


@pytest.fixture
def limits_as_delivered() -> Iterator[None]:
    """Restore the default limits, for tests of time limits and of their messages."""
    with override_settings(**AS_DELIVERED):
        yield


@pytest.fixture(scope="session", autouse=True)
def process_runner() -> Iterator[None]:
    """Make sandboxes processes in this process, since every machine can run those.

    Whole servers use Docker where an engine answers; the sandboxes' own tests use both. No sandbox
    is kept ready: the tests of the pool have their own pools, and tests travel in time.
    """
    nothing_kept = {"UAC_SANDBOX_POOL_MOST": 0, "UAC_SANDBOX_LEASE_SECONDS": 0.0}
    # No thread checks the alarms: their tests call the check.
    nothing_kept |= {"UAC_ALARM_SECONDS": 0.0, "UAC_CLOCK_SECONDS": 0.0}
    # No limits of a web process, whose application some tests load, or of a worker, which some
    # tests start in a thread.
    for kind in ("WEB", "WORKER"):
        nothing_kept |= {f"UAC_{kind}_STATEMENT_SECONDS": 0.0, f"UAC_{kind}_LOCK_SECONDS": 0.0}
    nothing_kept |= {"UAC_TRANSACTION_IDLE_SECONDS": 0.0}
    # Each test of the admin creates a member of the staff with a password, so hashing must be fast.
    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(
        UAC_SANDBOX_RUNNER="process", PASSWORD_HASHERS=quick, **nothing_kept, **AMPLE
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def type_cache() -> Iterator[None]:
    """Check the types of the same files once in a session: most tests have the same few classes.

    The type checker sees nothing but the files; its own tests ask it directly.
    """

    @functools.cache
    def check(runner: str, files: tuple[tuple[str, str], ...]) -> tuple[TypeFault, ...]:
        return tuple(check_types(dict(files)))

    def check_once(files: Mapping[str, str]) -> list[TypeFault]:
        return [*check(server.UAC_SANDBOX_RUNNER, tuple(sorted(files.items())))]

    with mock.patch.object(type_errors, "check_types", check_once):
        yield


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what the process found in an earlier test, whose rows had the same numbers.

    Also wait long enough that Redis does not count as down because the machine was busy.
    """
    values: list[tuple[object, str, object]] = [
        (hints, "PATIENCE_SECONDS", 30.0),
        *((module, "QUICK_SECONDS", 30.0) for module in (hints, rates, refusals)),
        *((module, "_silent_until", 0.0) for module in (hints, rates)),
        (hosts, "_believed_until", 0.0),
        (quotas, "_count_own_at", {}),
        (quotas, "_believed", {}),
        (runs, "_requested", {}),
        (retention, "_quiet_until", {}),
        # A test need not close the downloads that it is sent.
        (slots, "DOWNLOADS", free_slots(slots.DOWNLOADS, 1000)),
    ]
    for module, name, value in values:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def live_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A database of its own for a test that commits: a clone of the migrated one.

    Tables are never emptied between tests, because the log refuses that.
    """
    with cloned_database(django_db_blocker) as name:
        yield name


@contextmanager
def cloned_database(blocker: DjangoDbBlocker) -> Iterator[str]:
    """Work on a clone of the migrated database; yield its name."""
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
    """Drop a database once nobody is connected to it.

    FORCE is refused if autovacuum, or the server's own role, is connected. A plain drop sends
    autovacuum away, and waits some seconds for the others.
    """
    deadline = time.monotonic() + scaled(60)
    while True:
        try:
            return _as_owner("DROP DATABASE {}", database)
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            gc.collect()  # closes what ended threads have left open


def _as_owner(statement: str, *names: str) -> None:
    with psycopg.connect(SERVICES.postgres.owner_url, autocommit=True) as owner:
        owner.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))


@pytest.fixture(scope="module")
def populate_module(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Write rows once for all tests of a file, by a function whose result is returned.

    They are written in a transaction around those of the tests, each of which finds them unchanged.
    Only for fixtures of the same scope, and where no test needs an empty database.
    """
    with ExitStack() as around:

        def populate(make: Callable[[], Any]) -> Any:
            with django_db_blocker.unblock():
                return make()

        with django_db_blocker.unblock():
            around.enter_context(transaction.atomic())
        yield populate
        with django_db_blocker.unblock():
            transaction.set_rollback(True)
            around.close()


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> Workspace:
    """A workspace in the database of the test: that of `django_db`, or the live one."""
    if "live_database" in request.fixturenames:
        request.getfixturevalue("live_database")
    return Workspace.objects.create(name=f"workspace {uuid.uuid4().hex[:8]}")


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    """A user with an empty log."""
    return create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """An API client with a key of the workspace."""
    return new_client(workspace)


def new_client(
    workspace: Workspace, *scopes: Scope, scheme: str = "Bearer", **fields: Any
) -> APIClient:
    """Return an API client with a new key of the workspace, by default to read and write."""
    _, text = create_key(workspace, "tests", scopes or (Scope.READ, Scope.WRITE), **fields)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"{scheme} {text}")
    return client


@pytest.fixture
def work() -> Callable[[], None]:
    """Do all waiting work as the workers would, in this process."""
    return finish_work


def finish_work() -> None:
    """Do all waiting work; fail if it does not come to an end."""
    for _ in range(100):
        lanes = Lane.objects.filter(name=LaneName.RECORDS, due_at__isnull=False)
        unfinished = Run.objects.exclude(status=RunStatus.DONE)
        users = list(lanes.values_list("user_id", flat=True))
        waiting = list(unfinished.order_by("queued_at").values_list("pk", flat=True))
        versions = list(unjudged().values_list("pk", flat=True))
        tests = list(backtests.waiting().values_list("pk", flat=True))
        redacted = list(redaction.waiting().values_list("user_id", flat=True))
        if not any((users, waiting, versions, tests, redacted)):
            return
        for user in redacted:
            tasks.work("redactions", user)
        for version in versions:
            tasks.work("versions", str(version))
        for user in users:
            tasks.work("records", user)
        for run in waiting:
            tasks.work("runs", str(run))
        for test in tests:
            tasks.work("backtests", str(test))
    raise AssertionError("the work does not come to an end")


@pytest.fixture
def request_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the request that waits for a run execute it."""

    def execute(run_id: uuid.UUID, seconds: float) -> None:
        for kind in ("runs", "questions"):  # the other one finds nothing to claim
            tasks.work(kind, str(run_id))

    monkeypatch.setattr(hints, "wait_done", execute)


@pytest.fixture
def sandbox_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whoever waits for a run execute it."""

    def do(run: Run, seconds: float) -> None:
        tasks.work("runs", str(run.pk))
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
