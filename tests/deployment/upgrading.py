"""Clients that continue while a deployment is upgraded, and the results of their requests."""

import itertools
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Client
from tests.deployment.conftest import BUILD_SECONDS, CHECKOUT, Deployment
from tests.system import create_person, message, record
from tests.waiting import polled, scaled

USERS = 3
# Seconds that requests of the load wait, which is longer than a stopping process lives on, and
# seconds for which started requests are awaited: the difference is for the time before and after
# the wait.
WAIT_SECONDS = 20
DRAIN_SECONDS = 30


@dataclass
class Load:
    """Requests that clients send from several threads, and their answers."""

    client: Client
    acknowledged: list[tuple[str, str]] = field(default_factory=list)  # user, content
    failures: list[str] = field(default_factory=list)
    requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, what: str, good: tuple[int, ...], *request: Any, **options: Any) -> Any:
        """Send a request; an unexpected answer counts as failed."""
        try:
            status, body = self.client.request(*request, **options)
            problem = "" if status in good else f"{what}: {status} {body}"
        except Exception as error:
            problem, body = f"{what}: {error!r}", None
        with self._lock:
            self.requests += 1
            if problem:
                self.failures.append(problem)
        return None if problem else body

    def write(self, number: int) -> None:
        user, content = f"user-{number % USERS}", uuid.uuid4().hex
        request = ("POST", f"users/{user}/entries/?wait=0", {"entries": [message(content)]})
        if self.send("write", (201, 202), *request, headers={"Idempotency-Key": content}):
            with self._lock:
                self.acknowledged.append((user, content))

    def read(self, number: int) -> None:
        self.send("read", (200,), "GET", f"users/user-{number % USERS}/entries/?page_size=1")

    def wait(self, number: int) -> None:
        """Wait for alerts; there are none, so nothing ends the wait early."""
        self.send("wait", (200,), "GET", f"events/?after=now&wait={WAIT_SECONDS}")

    def compute(self, number: int) -> None:
        # 202: the query waits for a sandbox worker, which is replaced, too, and is done later.
        code = {"code": f"len(trips) + {number}"}
        path = f"users/user-{number % USERS}/query/?wait={WAIT_SECONDS}"
        body = self.send("query", (200, 202), "POST", path, code)
        if body is not None and "value" in body and body["value"] != number + 1:
            self.failures.append(f"query: {body}")


@contextmanager
def under_load(load: Load) -> Iterator[None]:
    """Send requests in this context, one after the other in each of seven threads."""
    over = threading.Event()

    def keep(do: Callable[[int], None], pause: float) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            do(number)
            over.wait(pause)

    kinds = ((load.write, 0.02), (load.write, 0.02), (load.read, 0.02), (load.read, 0.02))
    slow = ((load.compute, 0.2), (load.wait, 0.1), (load.wait, 0.3))
    threads = [threading.Thread(target=keep, args=kind) for kind in (*kinds, *slow)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def loaded(deployment: Deployment) -> Load:
    """Return the load for users that it has made, each with a record."""
    client = deployment.client("upgrade")
    for number in range(USERS):
        person = create_person(client, f"user-{number}")
        person.log(record("Trip", "rome", domain="travel", cost=1))
        polled(lambda: person.get()["head"], bool)  # noqa: B023
    return Load(client)


def upgrade(
    deployment: Deployment, image: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run deploy/upgrade to the end, as an operator does."""
    return subprocess.run(
        [str(CHECKOUT / "deploy" / "upgrade"), image],
        cwd=CHECKOUT,
        env={
            **deployment.environment,
            "COMPOSE": " ".join(deployment.command),
            "UAC_DOTENV": str(deployment.folder / ".env"),
            "UAC_DRAIN_SECONDS": str(DRAIN_SECONDS),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(BUILD_SECONDS),
    )


def contents(load: Load) -> dict[str, set[str]]:
    """Return the entries that the server has of each user."""
    found: dict[str, set[str]] = {}
    for number in range(USERS):
        user, after = f"user-{number}", 0
        found[user] = set()
        while True:
            path = f"users/{user}/entries/?after={after}&page_size=500"
            status, page = load.client.get(path)
            assert status == 200, page
            if not page["results"]:
                break
            after = page["results"][-1]["seq"]
            found[user] |= {one["content"] for one in page["results"] if one["kind"] == "message"}
    return found


def by_user(entries: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the acknowledged entries, in the form of `contents`."""
    found: dict[str, set[str]] = {f"user-{number}": set() for number in range(USERS)}
    for user, content in entries:
        found[user].add(content)
    assert sum(map(len, found.values())) == len(entries)
    return found


def upgrade_under_load(deployment: Deployment, load: Load, image: str) -> None:
    """Upgrade while requests are sent, and for a while before and after; none may fail."""
    with under_load(load):
        polled(lambda: len(load.acknowledged), lambda number: number > 20)
        finished = upgrade(deployment, image)
        sent = len(load.acknowledged)
        polled(lambda: len(load.acknowledged), lambda number: number > sent + 20)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert load.failures == []
