"""A person with a history, a server for real git clients, and a shell to run them in."""

import base64
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import psycopg
import pytest
from django.db import connections
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.kernel.workspaces import create_key
from tests.conftest import finish_work, new_client
from tests.services import SERVICES
from tests.waiting import scaled

Run = Callable[..., subprocess.CompletedProcess[str]]

OVERLAP = """\
import datetime
from collections.abc import Iterator

from domains.travel.state import passports, trips
from uac import Alert, critical


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"A passport must outlast the trip.\"\"\"
    for trip in trips:
        for passport in passports:
            if passport.expires < trip.on:
                yield critical(f"{trip.to}: {passport.number} is over", evidence=[trip, passport])
"""
OVERLAP_TESTS = """\
import datetime

from constraints import overlap
from domains.travel.schema import Passport, Trip
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)
PASSPORT = Passport(key="p", number="X1", expires=datetime.date(2026, 5, 1))


def test_speaks() -> None:
    trip = Trip(key="t", to="Rome", on=datetime.date(2026, 5, 2), cost=1)
    assert len(run_check(overlap, today=TODAY, trips=[trip], passports=[PASSPORT])) == 1


def test_is_silent() -> None:
    trip = Trip(key="t", to="Rome", on=datetime.date(2026, 4, 2), cost=1)
    assert run_check(overlap, today=TODAY, trips=[trip], passports=[PASSPORT]) == []
"""


def record(type_: str, key: str, *, retired: bool = False, **data: Any) -> dict[str, Any]:
    """Return a typed entry."""
    entry = {"kind": "record", "domain": "travel", "type": type_, "key": key, "data": data}
    return {**entry, "retired": True} if retired else entry


def say_to(api: APIClient) -> Callable[..., None]:
    """Return a function that appends entries of Ada and settles them."""

    def do(*entries: dict[str, Any]) -> None:
        assert api.post("/v1/users/ada/entries/", {"entries": entries}).status_code == 202
        finish_work()

    return do


@pytest.fixture
def say(user: MemoryUser, api: APIClient) -> Callable[..., None]:
    """Log entries and settle them."""
    return say_to(api)


@pytest.fixture
def lived(user: MemoryUser, api: APIClient) -> MemoryUser:
    """A person with five versions."""
    live(user, api)
    return user


@pytest.fixture(scope="module")
def lived_once(populate_module: Callable[[Callable[[], MemoryUser]], MemoryUser]) -> MemoryUser:
    """The same person for all tests of a file."""

    def make() -> MemoryUser:
        workspace = Workspace.objects.create(name="Company")
        user = create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)
        live(user, new_client(workspace))
        return user

    return populate_module(make)


def live(user: MemoryUser, api: APIClient) -> None:
    """Make five versions: records, a change, a constraint with tests, a retirement."""
    say = say_to(api)
    rome = record("Trip", "rome", to="Rome", on="2026-05-02", cost=840)
    say(rome, record("Passport", "p-1", number="X1", expires="2026-05-01"))
    say(record("Trip", "oslo", to="Oslo", on="2026-09-11", cost=1260))
    say(record("Trip", "rome", to="Rome", on="2026-04-02", cost=900))
    written = {"source": OVERLAP, "tests": OVERLAP_TESTS}
    answer = api.put("/v1/users/ada/constraints/overlap/?wait=0", written)
    assert answer.status_code == 202, answer.content
    finish_work()
    say(record("Trip", "oslo", retired=True))
    user.refresh_from_db()
    assert user.head is not None
    assert user.head.version == 5


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def process_request_thread(self, *arguments: Any) -> None:
        """Close connections afterwards: otherwise the database could not be dropped."""
        try:
            super().process_request_thread(*arguments)
        finally:
            connections.close_all()


class _Handler(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def base_url(live_database: str) -> Iterator[str]:
    """The address of a server in this process, on the database of the test."""
    from uac_site.wsgi import application

    with make_server("127.0.0.1", 0, application, _Server, _Handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def superuser(live_database: str) -> Callable[[str], None]:
    """Execute a statement that the server's role may not."""
    url = SERVICES.postgres.superuser_url.rsplit("/", 1)[0] + f"/{live_database}"

    def do(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # no triggers
            connection.execute(statement.encode())

    return do


@pytest.fixture
def key(workspace: Workspace) -> str:
    """A key that may read."""
    return create_key(workspace, "clone", [Scope.READ])[1]


@pytest.fixture
def git(tmp_path: Path, key: str) -> Run:
    """Run git with a key, and without this machine's settings."""

    def do(*arguments: str, cwd: Path = tmp_path, key: str = key, login: bool = True) -> Any:
        encoded = base64.b64encode(f"git:{key}".encode()).decode()
        header = ["-c", f"http.extraHeader=Authorization: Basic {encoded}"] if login else []
        return subprocess.run(
            ["git", *header, *arguments],
            cwd=cwd,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_TERMINAL_PROMPT": "0",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(240),
        )

    return do


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with its content and installed packages, and nothing of ours.

    The environment is otherwise that of a developer who works on a Django project.
    """
    environment = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**environment, "PATH": os.environ["PATH"], "HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(240),
    )


def assert_green(folder: Path) -> None:
    """The tests of a project must pass, and its types must be right."""
    tests = run_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout + tests.stderr
    types = run_python(folder, "-m", "mypy", "--strict", ".")
    assert types.returncode == 0, types.stdout + types.stderr
