"""One kept-alive connection: after an error, the next request is answered, or the client is told.

A server that answers before it has read the request's body must close the connection, since the
rest of the body would be taken for the next request. It has to say so with `Connection: close`.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.embedded.system import System
from tests.system import EVERYTHING, create_person, new_client, running_system
from tests.waiting import scaled


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with running_system(mcp=True) as system:
        yield system


@pytest.fixture(scope="module")
def key(system: System) -> str:
    client = new_client(system, "connections", *EVERYTHING)
    create_person(client)
    return client.key


@pytest.fixture(params=["web", "mcp"])
def address(request: pytest.FixtureRequest, system: System) -> str:
    """The address of a process that serves requests."""
    return urlsplit(system.base_url if request.param == "web" else system.mcp_url).netloc


@contextmanager
def connection_to(address: str) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(address, timeout=scaled(30))) as connection:
        yield connection


def post(
    connection: http.client.HTTPConnection, path: str, body: Any, **headers: str
) -> http.client.HTTPResponse:
    """Send a body and read the whole answer."""
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    answer.read()
    return answer


def is_alive(connection: http.client.HTTPConnection) -> bool:
    connection.request("GET", "/livez")
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


# A small body may have arrived before the server answers; a large one has not. While it sends an
# even larger one, which no buffer holds, a client may notice by itself that nobody reads it.
SIZES = (2, 1_000, 14_000, 100_000)


def test_after_an_error_the_next_request_is_answered(address: str) -> None:
    """The client keeps its connection, and opens another once it is told that it is closed."""
    with connection_to(address) as connection:
        for size in SIZES * 4:
            for path in ("/v1/users/ada/entries/", "/v1/nowhere/", "/mcp"):
                answer = post(connection, path, b"x" * size)
                assert answer.status in (401, 404), (path, size)
                assert is_alive(connection), (path, size)


@pytest.mark.parametrize(
    "path", ["/v1/users/nobody/entries/1/", "/v1/nowhere/", "/mem0/v3/memories/", "/admin/login/"]
)
def test_so_it_is_with_a_key_and_elsewhere(system: System, key: str, path: str) -> None:
    with connection_to(urlsplit(system.base_url).netloc) as connection:
        for size in SIZES:
            answer = post(connection, path, b"x" * size, Authorization=f"Bearer {key}")
            assert answer.status >= 400, size
            assert is_alive(connection), size


def test_a_connection_whose_body_was_not_read_is_said_to_close(address: str) -> None:
    """The answer comes before the body, which nobody will read."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=scaled(30)) as connection:
        connection.sendall(
            b"POST /v1/users/ada/entries/ HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(10_000)

    assert head.split()[1] in (b"401", b"404")
    assert b"\r\nconnection: close\r\n" in head.lower()


def test_a_connection_whose_body_was_read_stays_open(system: System, key: str) -> None:
    """It was read whether the request is accepted or, as without JSON, refused."""
    message = json.dumps({"kind": "message", "content": "x" * 100_000}).encode()
    with connection_to(urlsplit(system.base_url).netloc) as connection:
        connection.connect()
        connection.auto_open = 0  # the server must not have closed it
        for body, status in (
            (b"x" * 2, 400),
            (b"x" * 100_000, 400),
            (message, 202),
            (iter([message[:10], message[10:]]), 202),  # chunked
        ):
            answer = post(connection, "/v1/users/ada/entries/", body, Authorization=f"Bearer {key}")
            assert (answer.status, answer.getheader("Connection")) == (status, None)
        assert is_alive(connection)
