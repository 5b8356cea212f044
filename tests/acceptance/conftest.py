"""One whole server for the acceptance tests: real processes, spoken to over HTTP alone."""

import itertools
import json
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from cryptography.fernet import Fernet
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Response,
    expect,
    sync_playwright,
)

from benchmarks.harness import Client
from tests.docker_engine import skip_or_fail
from tests.waiting import polled as polled  # for those who import it from here
from tests.webhook_receiver import Receiver, answers, receiver
from uac_site.embedded import system as embedded
from uac_site.embedded.process import free_port
from uac_site.embedded.system import System

T = TypeVar("T")

# A superuser, to go through the admin with.
STAFF = "eve"
PASSWORD = "correct horse battery staple"

_numbers = itertools.count(1)

_LATE_SOURCE = '''"""Speaks of every task that is late."""

import datetime
from collections.abc import Iterator

from uac import Alert, warning

from domains.work.state import tasks


def check(today: datetime.date) -> Iterator[Alert]:
    """A task must not be late."""
    for task in tasks:
        if task.days > 0:
            yield warning(f"{task.name} is {task.days} days late", evidence=[task])
'''
_LATE_TESTS = '''import datetime

from uac.testing import run_check

from constraints import late
from domains.work.schema import Task

TODAY = datetime.date(2026, 1, 1)


def test_it_speaks_of_a_late_task() -> None:
    """A task that is late."""
    late_task = Task(key="a", name="a", days=3)
    assert len(run_check(late, today=TODAY, tasks=[late_task])) == 1


def test_it_is_silent_about_one_in_time() -> None:
    """A task in time."""
    in_time = Task(key="a", name="a", days=0)
    assert run_check(late, today=TODAY, tasks=[in_time]) == []
'''
# A constraint that speaks of each task of the domain `work` that is late, as it is put.
LATE = {"source": _LATE_SOURCE, "tests": _LATE_TESTS}


# A machine that is busy keeps a process waiting for some seconds, wherever it is: that is no reason
# to give up what it was asked for.
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
    """Run a server of a test's own, a patient one; a test that fails tells of it."""
    with embedded.running_system(
        *folder, environment={**PATIENT, **(environment or {})}, **options
    ) as system:
        _systems.append(system)
        try:
            yield system
        finally:
            _systems.remove(system)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a test that failed what the server's work waits for, and what it logged last."""
    report = yield
    if report.failed:
        own = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, System)]
        for system in own or _systems:
            report.sections.append(("what waits", _waiting(system)))
            for process in system.processes.values():
                report.sections.append((f"log of {process.name}", process.log_tail(60)))
    return report


def _waiting(system: System) -> str:
    """Rows of the database that say why something may not be done yet, or never will be."""
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


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """Where the sandbox worker of that server answers Prometheus."""
    return free_port()


@pytest.fixture(scope="session")
def collector() -> Iterator[Receiver]:
    """What that server sends its traces to."""
    with receiver(answers(200)) as server:
        yield server


@pytest.fixture(scope="session")
def system(metrics_port: int, collector: Receiver) -> Iterator[System]:
    """A running server, for tests that leave its processes alone."""
    environment = {
        "UAC_METRICS_PORT": str(metrics_port),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "UAC_WEBHOOK_ALLOW_HTTP": "true",
        "UAC_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
    with running_system(environment=environment) as system:
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

    def log(self, *entries: dict[str, Any], wait: float = 100) -> list[dict[str, Any]]:
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


# -- The admin in a browser ----------------------------------------------------------------------


# For a module and no longer: while it is there, a loop of events goes on in this thread, beside
# which tests cannot start one of theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        reason = "NOT RUN: the admin in a browser needs chromium (apt-get install chromium)"
        skip_or_fail(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def staff(system: System) -> str:
    """The name of a superuser of that server."""
    system.manage(
        "createsuperuser",
        "--noinput",
        environment={
            "DJANGO_SUPERUSER_USERNAME": STAFF,
            "DJANGO_SUPERUSER_EMAIL": f"{STAFF}@example.com",
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        },
    )
    return STAFF


@pytest.fixture
def page(browser: Browser, system: System, staff: str) -> Iterator[Page]:
    """The admin's front page, logged in; a page that fails or asks something fails the test."""
    trouble: list[str] = []
    with visitor(browser, system, trouble) as page:
        log_in(page, staff)
        yield page
    assert trouble == []


@contextmanager
def visitor(browser: Browser, system: System, trouble: list[str]) -> Iterator[Page]:
    """Open a page of somebody who is not logged in yet.

    What a page does that it must not is put into `trouble`: that it fails, asks something, or
    breaks the Content-Security-Policy.
    """

    def complain(message: ConsoleMessage) -> None:
        if message.type == "error" and "favicon" not in str(message.location):
            trouble.append(message.text)

    def fail(response: Response) -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            trouble.append(f"{response.status} {response.url}")

    context = browser.new_context(base_url=system.base_url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation', event =>"
        " console.error('violates ' + event.violatedDirective + ': ' + event.blockedURI))"
    )
    page = context.new_page()
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("console", complain)
    page.on("response", fail)
    try:
        yield page
    finally:
        context.close()


def follow(target: Locator) -> None:
    """Click on what leads to a page, and wait until that is there, all of its scripts too.

    What is done next would else be done to the page before, or before a script listens.
    """
    with target.page.expect_navigation():
        target.click()


def log_in(page: Page, name: str = STAFF) -> None:
    """Log in as one of the staff."""
    page.goto("/admin/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    follow(page.get_by_role("button", name="Log in"))
    expect(page.get_by_role("link", name="UaC: User as Code")).to_be_visible()
