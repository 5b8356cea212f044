"""Fixtures shared by all tests: a migrated database, seen with the privileges of the server."""

import gc
import importlib
import itertools
import os
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import psycopg
import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections, transaction
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.test.utils import override_settings, setup_databases, teardown_databases
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker, blocking_manager_key
from rest_framework.test import APIClient
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from memory.admission import rates, refusals, usage
from memory.admission.request_slots import Places
from memory.constraints.workspace_constraints import unjudged
from memory.models import Lane, MemoryUser, Run, Workspace
from memory.models.runs import RunStatus
from memory.models.users import LaneName
from memory.privacy import redaction, retention
from memory.recall import retrieval
from memory.temporal import backtests
from memory.users import create_user
from memory.work import hints, hosts, runs
from memory.workspaces import create_key
from tests.properties import examples
from tests.quarantine import QUARANTINED
from tests.services import SERVICES, TEMPLATE, become_template
from tests.tiers import holds_extended_only, is_extended, is_left_out_of_sweep, named
from tests.waiting import scaled
from workers import tasks

# What tests share tells, too, what an assertion has compared.
pytest.register_assert_rewrite("tests.sandbox_hosts", "tests.system")

# No example is too slow: the machine may be busy. In CI, as Hypothesis has it there: everybody gets
# the same examples, and none from a database.
hypothesis.settings.register_profile(
    "patient",
    hypothesis.settings.get_profile("ci" if os.environ.get("CI") else "default"),
    deadline=None,
    max_examples=examples(35),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

# What one process does, test after test: no more than two whole servers run at a time, and an
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


class InOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Several processes (`pytest -n`) take file after file, or folder, as each gets done."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # what comes last is quick: they end together

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(test: str) -> str:
    """Return what a process takes as a whole: a folder's name, or a file."""
    scopes = (scope for folder, scope in TOGETHER.items() if test.startswith(folder))
    return next(scopes, test.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InOrder:
    """Have the tests distributed like that."""
    return InOrder(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of the second tier where it is left out: each process would."""
    if leaves_out_extended(config):
        path = collection_path.relative_to(config.rootpath).as_posix()
        if holds_extended_only(f"{path}/" if collection_path.is_dir() else path):
            return True
    return None  # let others decide


def leaves_out_extended(config: pytest.Config) -> bool:
    """Return whether this session selects the first tier alone, as `make test` does."""
    return "not extended" in config.option.markexpr


# Listed in the quarantine or in tiers.py, and no test has it; only known where all are collected.
UNKNOWN = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Mark the second tier and what is set aside, before anything is selected by that.

    What one process takes as a whole comes first, after pytest-django has sorted, so that the other
    processes do not wait for it in the end.
    """
    found = set()
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    for item in items:
        test = item.nodeid.partition("[")[0]
        left_out = is_left_out_of_sweep(test, next(numbers[test]), cases[test])
        if left_out or is_extended(item.nodeid):
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
        and holds_extended_only(path)
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
    """Share among several processes what each would do: rewrite the assertions of every test.

    Each imports some of the files first, and then finds those of the others compiled. All that is
    collected stays until the end, so the garbage collector need not look at it again and again.
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
    """Return the files of the tests that this session collects, seen from the checkout."""
    files: set[Path] = set()
    for argument in config.args:
        asked = config.invocation_params.dir / argument.partition("::")[0]
        files.update(asked.rglob("test_*.py") if asked.is_dir() else [asked])
    found = sorted(file.resolve().relative_to(config.rootpath) for file in files)
    if leaves_out_extended(config):
        found = [file for file in found if not holds_extended_only(file.as_posix())]
    return found


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """As the owner create and migrate the test database, then become the runtime role."""
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


# What runs in a sandbox is not stopped because a busy machine left it without a processor.
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


# The limits of a test in which something has no end. Where something else runs under the same
# limit and must come to its end, it gets a little more: a busy machine holds it up.
ENDLESS_ALONE: Mapping[str, float] = {"UAC_SANDBOX_WALL_SECONDS": 0.5}
ENDLESS_AMONG_OTHERS: Mapping[str, float] = {"UAC_SANDBOX_WALL_SECONDS": 1.5}


@pytest.fixture
def limits_as_delivered() -> Iterator[None]:
    """For tests of what happens at the limits of time, and of what is told of them."""
    with override_settings(**AS_DELIVERED):
        yield


@pytest.fixture(scope="session", autouse=True)
def process_runner() -> Iterator[None]:
    """In this process sandboxes are processes, which every machine has.

    Whole servers use Docker where an engine answers; the sandboxes' own tests use both. None are
    kept ready: the tests of the pool have pools of their own. And tests travel in time.
    """
    nothing_kept = {"UAC_SANDBOX_POOL_MOST": 0, "UAC_SANDBOX_LEASE_SECONDS": 0.0}
    # Nor does a thread look for what is wrong: the tests of the alarms call it.
    nothing_kept |= {"UAC_ALARM_SECONDS": 0.0, "UAC_CLOCK_SECONDS": 0.0}
    # Nor is it held to the limits of a web process, whose application some tests load, or of a
    # worker, which some tests start in a thread.
    for kind in ("WEB", "WORKER"):
        nothing_kept |= {f"UAC_{kind}_STATEMENT_SECONDS": 0.0, f"UAC_{kind}_LOCK_SECONDS": 0.0}
    nothing_kept |= {"UAC_TRANSACTION_IDLE_SECONDS": 0.0}
    # And each of the staff, a new one in every test of the admin, has a password.
    quick = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with override_settings(
        UAC_SANDBOX_RUNNER="process", PASSWORD_HASHERS=quick, **nothing_kept, **AMPLE
    ):
        yield


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered that a process found in an earlier test, whose rows had the same
    numbers; and Redis is not taken for silent because the machine was busy."""
    monkeypatch.setattr(hints, "PATIENCE_SECONDS", 30.0)
    for module in (hints, rates, refusals):
        monkeypatch.setattr(module, "QUICK_SECONDS", 30.0)
    for module in (hints, rates):
        monkeypatch.setattr(module, "_silent_until", 0.0)
    monkeypatch.setattr(hosts, "_believed_until", 0.0)
    for name in ("_count_own_at", "_believed", "_asked_lately"):
        monkeypatch.setattr(usage, name, {})
    monkeypatch.setattr(retention, "_quiet_until", {})
    # A test need not close what it is sent.
    monkeypatch.setattr("memory.api.computing._downloads", Places(4, factor=1))


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
    """Drop a database once nobody is in it.

    Not by FORCE: that refuses where the autovacuum is, or the server's own role. A plain drop sends
    the autovacuum away, and waits some seconds for the others.
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

    They are written in a transaction around those of the tests, each of which finds them as they
    were made. Only for fixtures of the same scope, and where no test needs an empty database.
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
    return new_client(workspace)


def new_client(workspace: Workspace) -> APIClient:
    """Return a client of the API with a new key of the workspace."""
    _, text = create_key(workspace, "tests")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return client


@pytest.fixture
def work() -> Callable[[], None]:
    """Do all the work that waits, as the workers would, in this process."""
    return finish_work


def finish_work() -> None:
    """Do all the work that waits; fails if it does not come to an end."""
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
            tasks.redact(user)
        for version in versions:
            tasks.judge_workspace_constraint(str(version))
        for user in users:
            tasks.checkpoint_records(user)
        for run in waiting:
            tasks.execute_run(str(run))
        for test in tests:
            tasks.backtest(str(test))
    raise AssertionError("the work does not come to an end")


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
