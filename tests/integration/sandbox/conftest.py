"""Sandboxes of every runner, and a small project to run in them."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.docker_engine import missing, skip_or_fail
from tests.integration.sandbox.containers import Containers
from tests.integration.sandbox.engine import NEEDED, Runtime, running_engine
from workers.sandbox.build import ensure_image
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import Limits
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import load_runner

NOW = datetime.datetime(2026, 3, 1, 23, 30, tzinfo=datetime.UTC)

# For scripts that run as root: their children may not enter namespaces.
WITHOUT_NAMESPACES = "import ctypes; ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)"

PROJECT = {
    "domains/__init__.py": "",
    "domains/travel/__init__.py": "",
    "domains/travel/schema.py": """\
import datetime
import enum
from dataclasses import dataclass
from uac import Record, Ref

class Mode(enum.Enum):
    TRAIN = "train"

@dataclass(kw_only=True)
class Passport(Record):
    number: str

@dataclass(kw_only=True)
class Trip(Record):
    name: str
    on: datetime.date | None = None
    mode: Mode = Mode.TRAIN
    passport: Ref[Passport] | None = None
""",
    "domains/travel/state.py": """\
import datetime
from uac import Ref
from domains.travel.schema import Passport, Trip
from domains.travel.trips_0002 import trips as trips_0002

passport = Passport(key="p-1", number="X1", sources=(1,))
plans: list[Trip] = []
trips: list[Trip] = [
    Trip(key="t-1", name="Rome", on=datetime.date(2026, 3, 1), sources=(2, 3)),
    Trip(key="t-2", name="Oslo", passport=Ref[Passport]("p-1")),
    *trips_0002,
]
""",
    "domains/travel/trips_0002.py": """\
from domains.travel.schema import Trip
trips: list[Trip] = [Trip(key="t-3", name="Bonn")]
""",
    "domains/notes/__init__.py": "",
    "domains/notes/schema.py": """\
from dataclasses import dataclass
from uac import Record

@dataclass(kw_only=True)
class Note(Record):
    text: str
""",
    "domains/notes/state.py": """\
from domains.notes.schema import Note
notes: list[Note] = [Note(key="note-1", text="hello", sources=(4,))]
plans: list[Note] = []
""",
    "constraints/__init__.py": "",
    "constraints/today.py": """\
import datetime
from collections.abc import Iterator
from uac import Alert, critical
from domains.travel.state import trips

def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        if trip.on == today:
            yield critical(f"{trip.name} is today", evidence=[trip])
""",
    "tests/__init__.py": "",
    "tests/test_today.py": """\
import datetime
from constraints import today
from domains.travel.schema import Trip
from uac.testing import run_check

DAY = datetime.date(2026, 1, 1)

def test_speaks() -> None:
    assert len(run_check(today, today=DAY, trips=[Trip(key="t", name="x", on=DAY)])) == 1

def test_is_silent() -> None:
    assert run_check(today, today=DAY) == []
""",
}


@contextmanager
def sandbox_error(
    outcome: str | None = None, *messages: str, infrastructure: bool | None = None
) -> Iterator[pytest.ExceptionInfo[SandboxError]]:
    """Expect an error with this outcome, these texts in its message, and this side at fault."""
    with pytest.raises(SandboxError) as raised:
        yield raised
    assert outcome in (None, raised.value.outcome)
    assert [text for text in messages if text not in raised.value.message] == []
    assert infrastructure in (None, raised.value.infrastructure)


def value_of(sandbox: Sandbox, code: str, **limits: Any) -> Any:
    """Return the value of a query."""
    return sandbox.evaluate(code, now=NOW, time_zone="UTC", limits=Limits(**limits)).value


@pytest.fixture(scope="session")
def docker_image() -> str:
    """The name of this release's image, which is built if needed."""
    return ensure_image()


@pytest.fixture
def mine() -> Iterator[Containers]:
    """The containers that this test creates."""
    with Containers() as containers:
        yield containers


@pytest.fixture(scope="package")
def other_engine(docker_image: str) -> Iterator[str]:
    """The DOCKER_HOST of an engine of the tests' own, which has crun and gVisor."""
    skip_or_fail(missing(*NEEDED))
    with running_engine(docker_image) as host:
        yield host


@pytest.fixture(
    scope="module",
    params=[
        "runc",
        pytest.param("crun", marks=pytest.mark.extended),
        pytest.param("runsc", marks=pytest.mark.extended),
    ],
)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Every OCI runtime in turn: the engine's own, and two of an engine of the tests' own."""
    if request.param == "runc":
        return Runtime("")
    return Runtime(request.param, request.getfixturevalue("other_engine"))


@pytest.fixture
def chosen(runtime: Runtime) -> Iterator[None]:
    """Give sandboxes this runtime until the end of the test."""
    with runtime.chosen():
        yield


@pytest.fixture(
    scope="module", params=["process", pytest.param("docker", marks=pytest.mark.docker)]
)
def runner(request: pytest.FixtureRequest) -> Runner:
    """Every runner in turn: these tests hold for all of them."""
    if request.param == "docker":
        request.getfixturevalue("docker_image")
    return load_runner(request.param)


@pytest.fixture
def sandbox(runner: Runner) -> Iterator[Sandbox]:
    """An empty sandbox for one test."""
    with runner.start() as one:
        yield one


@pytest.fixture(scope="module")
def loaded(runner: Runner) -> Iterator[Sandbox]:
    """A sandbox with PROJECT, shared by the tests of a module, none of which may harm it."""
    with runner.start() as one:
        one.load(PROJECT)
        yield one
        assert one.alive


@pytest.fixture
def isolated(loaded: Sandbox) -> Sandbox:
    """The same, if the kernel allows it namespaces of its own."""
    folders = value_of(loaded, "import os\nos.listdir('/')")
    assert isinstance(folders, list)
    if loaded.runner_name == "process" and "etc" in folders:
        skip_or_fail("needs namespaces, which this kernel does not allow this user")
    return loaded
