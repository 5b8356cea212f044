"""Whole servers, used only over HTTP: shared by all tests that run one."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.harness import Client
from benchmarks.harness import new_client as new_client
from deploy.demo import person as sample
from deploy.demo.recorded_model import NAME, Recording, recorded_model
from deploy.embedded import system as embedded
from deploy.embedded.system import System
from tests.constraints import make_rule

# A constraint that fires for each late task of the domain `work`, in the form for a request.
LATE = make_rule(
    "late",
    "work.Task",
    "task.days > 0",
    "{task.name} is {task.days} days late",
    fires='name="a", days=3',
    silent='name="a", days=0',
    doc="A task must not be late.",
)
# A constraint of the demo's person, in the form for a request.
[DRUG_ALLERGY] = [
    {"source": constraint.source, "tests": constraint.tests}
    for constraint in sample.constraints()
    if constraint.name == "drug_allergy"
]

# The scopes of a key that may do everything.
EVERYTHING = ("read", "write", "manage")
# The settings of a server whose webhooks may be received on this machine.
LOCAL_WEBHOOKS = {
    "UAC_WEBHOOK_ALLOW_HTTP": "true",
    "UAC_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
}
# A busy machine may hold up a process for some seconds anywhere: that must not cause a timeout.
PATIENT = {
    "UAC_MAX_WAIT_SECONDS": "100",
    "UAC_SANDBOX_WALL_SECONDS": "20",
    "UAC_SANDBOX_CPU_SECONDS": "20",
    "UAC_SANDBOX_TOTAL_SECONDS": "80",
    "UAC_WEB_LOCK_SECONDS": "30",
    "UAC_WEB_STATEMENT_SECONDS": "60",
    "UAC_STOP_SECONDS": "15",
}

_systems: list[System] = []


@contextmanager
def running_system(
    *folder: Path, environment: Mapping[str, str] | None = None, **options: Any
) -> Iterator[System]:
    """Run a patient server of a test's own; a failed test reports its state."""
    with embedded.running_system(
        *folder, environment={**PATIENT, **(environment or {})}, **options
    ) as system:
        _systems.append(system)
        try:
            yield system
        finally:
            _systems.remove(system)


@contextmanager
def running_system_of(*recordings: Recording) -> Iterator[System]:
    """Start a server whose model gives these recorded answers, one call after each message."""
    with recorded_model(*recordings) as url:
        environment = {
            "UAC_LLM_MODEL": NAME,
            "UAC_LLM_BASE_URL": url,
            "UAC_LLM_API_KEY": "",
            "UAC_STRUCTURE_ENTRIES": "1",
        }
        with running_system(llm_workers=1, environment=environment) as system:
            yield system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test what the server's work waits for, and its last log lines."""
    report = yield
    if report.failed:
        own = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, System)]
        for system in own or _systems:
            report.sections.append(("what waits", _waiting(system)))
            for process in system.processes.values():
                report.sections.append((f"log of {process.name}", process.log_tail(60)))
    return report


def _waiting(system: System) -> str:
    """Return rows of the database that explain why work is not done yet, or never will be."""
    lines = []
    with (
        suppress(psycopg.Error),
        psycopg.connect(system.services.postgres.owner_url, connect_timeout=5) as database,
    ):
        database.execute("SET statement_timeout = '5s'")
        for rows in (
            "SELECT now()",
            "SELECT * FROM memory_lane WHERE due_at IS NOT NULL",
            "SELECT id, user_id, kind, status, attempts, run_after, hinted_at, lease_owner,"
            " lease_expires_at, last_error FROM memory_run WHERE status <> 'done'",
            "SELECT user_id, seq, outcome, reason, decided_at FROM memory_entryoutcome"
            " WHERE outcome = 'rejected' ORDER BY id DESC",
            "SELECT * FROM memory_sandboxhost",
        ):
            found = database.execute(f"SELECT to_jsonb(t)::text FROM ({rows} LIMIT 10) t")
            lines += [line for (line,) in found]
    return "\n".join(lines)


def ok(answered: tuple[int, Any]) -> Any:
    """Return the body of an answer, which must be no error."""
    status, body = answered
    assert 200 <= status < 300, body
    return body


def select_rows(system: System, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Query the server's database, with the server's own role."""
    with psycopg.connect(system.environment["DATABASE_URL"]) as database:
        return database.execute(statement, parameters).fetchall()


def count_rows(system: System, rows: str, *parameters: object) -> int:
    """Count the rows of what follows FROM."""
    return int(select_rows(system, f"SELECT count(*) FROM {rows}", *parameters)[0][0])


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
        assert answered == status, json.dumps(answer, indent=1)
        return answer

    def log(self, *entries: dict[str, Any], wait: float = 100) -> list[dict[str, Any]]:
        """Append entries, wait until the typed ones are settled, and return them."""
        answer = self.post(f"entries/?wait={wait}", {"entries": list(entries)}, status=202)
        assert len(answer["entries"]) == len(entries)
        appended: list[dict[str, Any]] = answer["entries"]
        return appended

    def write_constraint(
        self, name: str, constraint: Mapping[str, str], *, status: int = 200
    ) -> dict[str, Any]:
        """Write a constraint, which must be accepted unless another status is expected."""
        path = f"constraints/{name}/?wait=100"
        decision: dict[str, Any] = self.request("PUT", path, constraint, status=status)
        assert decision["accepted"] is (status == 200), decision
        return decision

    def file(self, path: str) -> str:
        """Return a file of the newest version of the project."""
        head = self.get()["head"]
        return str(self.get(f"checkpoints/{head}/files/{path}")["source"])

    def alerts(self, state: str | None = None) -> list[dict[str, Any]]:
        suffix = f"?state={state}" if state else ""
        alerts: list[dict[str, Any]] = self.get(f"alerts/{suffix}")["results"]
        return alerts


def create_person(client: Client, user_id: str = "ada", **fields: Any) -> Person:
    """Create a user with an empty log."""
    status, body = client.post("users/", {"user_id": user_id, **fields})
    assert status == 201, body
    return Person(client, user_id)


def record(type_name: str, key: str, *, domain: str, **data: Any) -> dict[str, Any]:
    """Return a typed entry."""
    return {"kind": "record", "domain": domain, "type": type_name, "key": key, "data": data}


def message(content: str) -> dict[str, Any]:
    """Return a user's message."""
    return {"kind": "message", "role": "user", "content": content}


def task(key: str, days: int) -> dict[str, Any]:
    """Return a task that is so many days late."""
    return record("Task", key, domain="work", name=key, days=days)


def log_tasks(person: Person, *late: int) -> None:
    """Append tasks that are so many days late."""
    person.log(*(task(f"t-{number}", days) for number, days in enumerate(late)))
