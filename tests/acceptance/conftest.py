"""One whole server for the acceptance tests: real processes, spoken to over HTTP alone."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from benchmarks.harness import Client
from uac_site.embedded.process import free_port
from uac_site.embedded.system import System, running_system

T = TypeVar("T")

_numbers = itertools.count(1)


def polled(look: Callable[[], T], enough: Callable[[T], object], seconds: float = 60) -> T:
    """Look until it is enough, and return what was seen; fail with the last look after a bound."""
    deadline = time.monotonic() + seconds
    while not enough(seen := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s; last seen: {seen!r}")
        time.sleep(0.1)
    return seen


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """Where the sandbox worker of that server answers Prometheus."""
    return free_port()


@pytest.fixture(scope="session")
def system(metrics_port: int) -> Iterator[System]:
    """A running server, for tests that leave its processes alone."""
    with running_system(environment={"UAC_METRICS_PORT": str(metrics_port)}) as system:
        yield system
        system.check()


@pytest.fixture(scope="session")
def client(system: System) -> Client:
    """A caller with a key of a workspace of that server."""
    return new_client(system, "acceptance")


def new_client(system: System, workspace: str) -> Client:
    """Return a caller with a new key of the workspace, which is created if there is none."""
    key = json.loads(system.manage("create_workspace", workspace))["api_key"]
    return Client(system.base_url, key)


@dataclass(frozen=True)
class Person:
    """A user of the server, and the requests about it. Statuses are asserted, bodies returned."""

    client: Client
    user_id: str

    def get(self, path: str = "", *, status: int = 200) -> Any:
        return self.request("GET", path, status=status)

    def post(self, path: str, body: Any, *, status: int) -> Any:
        return self.request("POST", path, body, status=status)

    def request(self, method: str, path: str, body: Any = None, *, status: int) -> Any:
        answered, answer = self.client.request(method, f"users/{self.user_id}/{path}", body)
        assert answered == status, answer
        return answer

    def log(self, *entries: dict[str, Any], wait: float = 30) -> list[dict[str, Any]]:
        """Append entries, wait until the typed ones are settled, and return them."""
        answer = self.post(f"entries/?wait={wait}", {"entries": list(entries)}, status=202)
        assert answer["logged"] == len(entries)
        appended: list[dict[str, Any]] = answer["entries"]
        return appended

    def file(self, path: str) -> str:
        """Return a file of the newest version of the project."""
        head = self.get()["head"]
        return str(self.get(f"checkpoints/{head}/files/{path}")["source"])

    def alerts(self, state: str | None = None) -> list[dict[str, Any]]:
        suffix = f"?state={state}" if state else ""
        alerts: list[dict[str, Any]] = self.get(f"alerts/{suffix}")["results"]
        return alerts


@pytest.fixture
def person(client: Client) -> Person:
    """A user with an empty log, of no other test."""
    user_id = f"person-{next(_numbers)}"
    status, body = client.post("users/", {"user_id": user_id, "time_zone": "Europe/Berlin"})
    assert status == 201, body
    return Person(client, user_id)


def record(type_name: str, key: str, *, domain: str, **data: Any) -> dict[str, Any]:
    """Return a typed entry."""
    return {"kind": "record", "domain": domain, "type": type_name, "key": key, "data": data}


def message(content: str) -> dict[str, Any]:
    """Return what a person said."""
    return {"kind": "message", "role": "user", "content": content}
