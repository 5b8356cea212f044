"""Bytes that no well-behaved client sends, to a real server: answered, and nothing written."""

import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.system import Person, message
from tests.waiting import scaled

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """An answer as it came on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        return problem


def send(
    person: Person, *parts: bytes, path: bytes = b"entries/", headers: Iterable[bytes] = ()
) -> Answer:
    """Send a POST with these headers and this body unchanged, and read the answer."""
    lines = [
        b"POST /v1/users/%s/%s HTTP/1.1" % (person.user_id.encode(), path),
        b"Host: " + urlsplit(person.client.base_url).netloc.encode(),
        b"Authorization: Bearer " + person.client.key.encode(),
        b"Connection: close",
        *headers,
    ]
    with connect(person) as connection:
        try:
            connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough; the answer is there
        with connection.makefile("rb") as stream:
            return read(stream.read())


def read(answer: bytes) -> Answer:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in fields)
    }
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    return Answer(int(status.split()[1]), headers, body)


def unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return whole


JSON = b"Content-Type: application/json"
CHUNKED = (JSON, b"Transfer-Encoding: chunked")
BODY = json.dumps(message("x")).encode()


def json_of(body: bytes) -> list[bytes]:
    return [JSON, b"Content-Length: %d" % len(body)]


def logged(person: Person) -> int:
    return int(person.get()["entries"]["total"])


def assert_refused(person: Person, answer: Answer, status: int, word: str) -> None:
    """Nothing was written, and the detail has the word."""
    assert answer.status == status
    assert word in answer.problem["detail"]
    assert logged(person) == 0


def connect(person: Person) -> socket.socket:
    address = urlsplit(person.client.base_url)
    return socket.create_connection((address.hostname, address.port), timeout=scaled(60))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"kind": "message", "content": "\xff"}', "UTF-8"),
        (b'{"kind": "message", "content": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"kind": "message", "content": "\\ud800"}', "content has a lone surrogate"),
        (b'{"kind": "message", "content": "a\\u0000b"}', "content has a NUL"),
        (b'{"kind": "message", "content": "a\x00b"}', "not valid JSON"),
        (b'{"kind": "message", "content": "a", "content": "b"}', "twice"),
        (b'[{"kind": "message"}]', "must be a JSON object"),
        (b'{"kind": "message", "content": "cut off', "not valid JSON"),
        (b'{"metadata": ' + b'{"a":' * 100_000, "deeper than 32 levels"),
        (b"\x1f\x8b\x08\x00", "UTF-8"),
    ],
)
def test_a_body_that_cannot_be_read(person: Person, body: bytes, word: str) -> None:
    answer = send(person, body, headers=json_of(body))

    assert_refused(person, answer, 400, word)
    (entry,) = person.log(message("good"))
    assert entry["seq"] == 1


@pytest.mark.parametrize("type_", [b"text/plain", b"multipart/form-data; boundary=x", b"a\xff"])
def test_a_body_that_is_no_json(person: Person, type_: bytes) -> None:
    headers = [b"Content-Type: " + type_, b"Content-Length: %d" % len(BODY)]

    answer = send(person, BODY, headers=headers)

    assert_refused(person, answer, 415, "application/json")


def test_a_body_beyond_the_limit(person: Person) -> None:
    body = b'{"kind": "message", "content": "%s"}' % (b"x" * 9 * MEGABYTE)

    answer = send(person, body, headers=json_of(body))

    assert_refused(person, answer, 413, "8388608 bytes")


def test_a_body_that_comes_in_chunks(person: Person) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:10], BODY[10:]))

    answer = send(person, chunks + b"0\r\n\r\n", headers=CHUNKED)

    assert answer.status == 202, answer.body
    assert logged(person) == 1


def test_a_body_that_comes_in_chunks_and_does_not_end(person: Person) -> None:
    chunk = b"100000\r\n%s\r\n" % (b"x" * MEGABYTE)

    answer = send(person, *[chunk] * 12, headers=CHUNKED)

    assert_refused(person, answer, 413, "8388608 bytes")


def test_a_stranger_is_not_listened_to(person: Person) -> None:
    """There are more strangers than threads, each in the middle of a body that never ends."""
    address = urlsplit(person.client.base_url)
    head = (
        f"POST /v1/users/{person.user_id}/entries/ HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    )
    with ExitStack() as stack:
        strangers = [stack.enter_context(connect(person)) for _ in range(40)]
        for one in strangers:
            one.sendall(head.encode())
        assert logged(person) == 0  # somebody with a key is answered meanwhile
        for one in strangers:
            assert one.recv(12) == b"HTTP/1.1 401"


def test_a_body_that_ends_too_soon(person: Person) -> None:
    with connect(person) as connection:
        connection.sendall(
            b"POST /v1/users/%s/entries/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (person.user_id.encode(), person.client.key.encode(), len(BODY) + 100, BODY)
        )
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            answer = stream.read()

    # There is nobody left to answer; any answer must be an error.
    assert not answer or read(answer).status in (400, 408)
    assert logged(person) == 0


@pytest.mark.parametrize(
    "path", [b"%ff/", b"%zz/", b"%00/", b"%ed%a0%80/", b"a%2f%2e%2e/", b"\xff/"]
)
def test_an_address_that_is_none(person: Person, path: bytes) -> None:
    answer = send(person, BODY, path=path, headers=json_of(BODY))

    assert answer.status in (400, 404)
    if answer.status == 404:
        assert answer.problem["detail"]
    assert logged(person) == 0


def test_query_parameters_that_are_no_text(person: Person) -> None:
    for query in (b"wait=%ff", b"wait=%00", b"wait=%ed%a0%80", b"wait=%zz", b"wait=\xff"):
        answer = send(person, BODY, path=b"entries/?" + query, headers=json_of(BODY))
        assert answer.status == 400
    assert logged(person) == 0


def test_a_lost_answer_may_be_asked_for_again(person: Person) -> None:
    headers = [*json_of(BODY), b"Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324"]

    first, again = (send(person, BODY, headers=headers) for _ in range(2))

    assert (first.status, again.status) == (202, 202)
    assert again.headers["idempotent-replayed"] == "true"
    assert json.loads(again.body) == json.loads(first.body)
    assert logged(person) == 1


@pytest.mark.parametrize("key", [b"", b"k" * 256, b"\xc3\xa9", b"a\tb"])
def test_a_malformed_key(person: Person, key: bytes) -> None:
    answer = send(person, BODY, headers=[*json_of(BODY), b"Idempotency-Key: " + key])

    assert answer.status == 400
    assert "Idempotency-Key" in answer.problem["errors"]
    assert logged(person) == 0
