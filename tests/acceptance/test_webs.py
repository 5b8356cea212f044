"""Several web processes form one server: every process gives the same answers."""

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.harness import Client
from deploy.embedded.process import free_port
from deploy.embedded.system import System
from tests.system import (
    EVERYTHING,
    LATE,
    Person,
    create_person,
    message,
    new_client,
    running_system,
    task,
)
from tests.waiting import polled, scaled


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A server with its first web process."""
    with running_system() as system:
        yield system


@pytest.fixture
def other_web(system: System) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A second web process, and its address."""
    port = free_port(0)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--blocking-threads", "8", "uac_site.wsgi:application"],
        env={**os.environ, **system.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # granian's own worker is in its group
    )
    try:
        polled(lambda: answers(url), bool)
        yield url, process
    finally:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(scaled(60))


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_two_web_processes_are_one_server(
    system: System, other_web: tuple[str, "subprocess.Popen[bytes]"]
) -> None:
    url, process = other_web
    client = new_client(system, "webs")
    here = create_person(client)
    there = Person(replace(client, base_url=url), "ada")

    # What one has acknowledged, the other tells at once.
    here.log(task("a", days=0))
    assert there.get("entries/")["results"] == here.get("entries/")["results"]

    # The same request to both at one time is done once.
    def send(person: Person) -> tuple[int, Any]:
        body, headers = message("Only once."), {"Idempotency-Key": "once"}
        return person.client.request("POST", "users/ada/entries/", body, headers=headers)

    with ThreadPoolExecutor(8) as threads:
        answered = list(threads.map(send, (here, there) * 4))
    # To who came while it was under way, that was said.
    done = [body for status, body in answered if status == 202]
    assert {status for status, _ in answered} <= {202, 409}
    assert len({body["entries"][0]["id"] for body in done}) == 1

    # A query that one has taken is answered by the other.
    polled(lambda: there.get()["entries"]["covered"], bool)
    run = here.post("query/?wait=0", {"code": "tasks[0].days"}, status=202)
    assert there.client.finished(run["id"])["output"]["value"] == 0

    # Who waits for alerts at one hears of what comes in at the other.
    status, body = there.client.request("PUT", "users/ada/constraints/late/?wait=100", LATE)
    assert status == 200 or there.client.finished(body["id"])["outcome"] == "ok", body
    with ThreadPoolExecutor() as threads:
        alerts = "events/?after=0&wait=25"
        heard = threads.submit(polled, lambda: here.client.get(alerts)[1]["results"], bool)
        there.log(task("b", days=9))
    assert [alert["evidence"][0]["key"] for alert in heard.result()] == ["b"]

    # And where one is gone, the other goes on.
    before = here.get()["entries"]["total"]
    kill(process)
    here.log(message("It goes on."))
    assert here.get()["entries"]["total"] == before + 1


def test_clients_that_read_no_answer_hold_few_threads(system: System) -> None:
    # Given a person of whom megabytes are kept, which no buffer on the way holds
    slow = new_client(system, "slow", *EVERYTHING)
    quick = new_client(system, "quick")
    create_person(slow)
    for _ in range(6):
        assert slow.post("users/ada/entries/", message(secrets.token_urlsafe(600_000)))[0] == 202
    # When more connections than there are threads ask for them, or for the document that takes no
    # key, and read nothing
    requests = ["users/ada/subject-access/", "openapi.json"] * 20
    with ExitStack() as stack:
        unread = [stack.enter_context(asked_for(slow, path)) for path in requests]
        polled(lambda: len(select.select(unread, [], [], 0)[0]), lambda n: n == len(unread))
        # Then others are answered
        for _ in range(5):
            assert quick.get("users/")[0] == 200
        told = [one.recv(20) for one in unread[::2]]
        assert sum(one.startswith(b"HTTP/1.1 200") for one in told) == 2
        assert sum(one.startswith(b"HTTP/1.1 429") for one in told) == len(told) - 2
    # And when the connections are gone, it is sent again
    polled(lambda: beginning(slow, "users/ada/export/"), lambda head: head == b"HTTP/1.1 200")


def beginning(client: Client, path: str) -> bytes:
    with asked_for(client, path) as connection:
        return connection.recv(12)


def asked_for(client: Client, path: str) -> socket.socket:
    """Open a connection that has sent a request, with almost no buffer for the answer."""
    address = urlsplit(client.base_url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((address.hostname, address.port))
    head = f"GET /v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.key}\r\n"
    connection.sendall(f"{head}\r\n".encode())
    return connection
