"""A call to somebody else's server goes only to a checked address, and always ends in time."""

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.outgoing import connections, destinations
from memory.kernel.outgoing.destinations import Address
from tests.waiting import scaled
from tests.webhook_receiver import (
    Behaviour,
    Call,
    answers,
    certificate,
    drips,
    hangs,
    receiver,
    says,
    tls,
)
from workers.delivery import webhooks
from workers.delivery.webhooks import Response

HERE: Address = ipaddress.ip_address("127.0.0.1")


@pytest.fixture(autouse=True)
def here_is_allowed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 60.0)  # but where a body drips
    settings.UAC_WEBHOOK_ALLOW_HTTP = True
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]


def post(url: str, seconds: float = 60, body: bytes = b'{"a":1}') -> Response:
    return webhooks.post(url, body, {"Content-Type": "application/json"}, seconds=seconds)


def test_call_posts_the_body_and_returns_the_answer() -> None:
    with receiver(answers(200, b"thanks")) as server:
        answer = post(server.url)

    assert answer == Response(200, "", "127.0.0.1", "", "thanks")
    (received,) = server.received
    assert (received.path, received.body) == ("/hook", b'{"a":1}')
    assert received.headers["host"] == f"127.0.0.1:{server.port}"
    assert received.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_success(status: int) -> None:
    with receiver(answers(status)) as server:
        assert post(server.url).error == ""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(status: int) -> None:
    with receiver() as inside, receiver(answers(status, location=inside.url)) as server:
        answer = post(server.url)

    assert answer.status == status
    assert "redirects are not followed" in answer.error
    assert inside.received == []


@pytest.mark.parametrize(
    ("behaviour", "status", "error"),
    [
        (answers(500, b"oops"), 500, "The endpoint returned 500."),
        (answers(410), 410, "The endpoint returned 410."),
        (answers(429, retry_after="7"), 429, "The endpoint returned 429."),
        (says(b""), None, "The connection was closed without a response."),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), None, "BadStatusLine"),
        (says(b"\x00\xff" * 50 + b"\r\n\r\n"), None, "BadStatusLine"),
        (says(b"HTTP/1.1 200 " + b"x" * 100_000), None, "longer than"),
        (says(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n"), None, "100 headers"),
        (says(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000), None, "longer than"),
    ],
)
def test_unsuccessful_answer_is_reported(
    behaviour: Behaviour, status: int | None, error: str
) -> None:
    with receiver(behaviour) as server:
        answer = post(server.url)

    assert answer.status == status
    assert error in answer.error
    assert answer.address == "127.0.0.1"
    assert "\x00" not in answer.error


def test_retry_after_and_the_beginning_of_the_answer_are_kept() -> None:
    with receiver(answers(503, "ü".encode() * 5000, retry_after="120")) as server:
        answer = post(server.url)

    assert answer.retry_after == "120"
    assert answer.excerpt.startswith("üüü")
    assert len(answer.excerpt.encode()) <= 1024 + 2


@pytest.mark.parametrize(
    "behaviour",
    [hangs, drips(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 10_000, 0.2)],
    ids=["hangs", "drips"],
)
def test_an_answer_that_does_not_come_in_time_is_a_failure(behaviour: Behaviour) -> None:
    began = time.monotonic()
    with receiver(behaviour) as server:
        answer = post(server.url, seconds=1)
        took = time.monotonic() - began

    assert answer.status is None
    assert "(1 s)" in answer.error
    assert took < scaled(40)  # a small part of the header would have come


def test_a_body_that_drips_does_not_take_back_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 1.0)
    began = time.monotonic()
    with receiver(drips(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000, 0.05)) as server:
        answer = post(server.url)
        took = time.monotonic() - began

    assert (answer.status, answer.error) == (200, "")
    assert took < scaled(40)


def test_200_and_a_body_that_ends_early_is_success() -> None:
    with receiver(says(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhalf")) as server:
        answer = post(server.url)

    assert (answer.status, answer.error, answer.excerpt) == (200, "", "half")


def test_gigabyte_answer_is_read_in_part() -> None:
    written: list[int] = []

    def floods(call: Call) -> None:
        call.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % 2**30)
        for _ in range(2**30 // 65536):
            call.write(b"x" * 65536)
            written.append(65536)

    with receiver(floods) as server:
        answer = post(server.url)

    assert (answer.status, answer.error, len(answer.excerpt)) == (200, "", 1024)
    assert sum(written) < 2**30 / 16  # the rest was left, but what the system's buffers took


def test_a_receiver_that_does_not_read_ends_in_time_too() -> None:
    began = time.monotonic()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        answer = post(
            f"http://127.0.0.1:{deaf.getsockname()[1]}/", seconds=5, body=b"x" * 30_000_000
        )

    assert "no response in time" in answer.error
    assert time.monotonic() - began < scaled(30)


def test_refused_connection_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    answer = post(f"http://127.0.0.1:{port}/")

    assert "No connection to 127.0.0.1: ConnectionRefusedError" in answer.error


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert post(server.url).status == 200

    assert (len(server.received), len(proxy.received)) == (1, 0)


def test_the_inside_is_not_called(settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = []
    with receiver() as server:
        answers = [post(server.url), post(server.url_of("localhost"))]

    for answer in answers:
        assert "not a public internet address" in answer.error
    assert server.received == []


def test_a_name_that_changes_between_look_ups_is_looked_up_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a name that leads to an allowed address at first, and to another one ever after.
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.1/32"]
    looks: list[str] = []

    def getaddrinfo(host: str, port: int, *args: object, **kwargs: object) -> list[object]:
        if host != "rebinding.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        looks.append(host)
        address = "127.0.0.1" if len(looks) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with receiver() as server:
        first = post(server.url_of("rebinding.example"))
        second = post(server.url_of("rebinding.example"))

    # Then the call went to the address that was judged, and the next one was judged anew.
    assert (first.status, first.address) == (200, "127.0.0.1")
    assert server.received[0].headers["host"] == f"rebinding.example:{server.port}"
    assert "127.0.0.2, which is not a public internet address" in second.error
    assert looks == ["rebinding.example"] * 2
    assert len(server.received) == 1


# -- Certificates --------------------------------------------------------------------------------


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The certificate of `hooks.example`, which the server trusts; that name leads here."""
    path = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setattr(destinations, "look_up", lambda *arguments: [HERE])
    connections._tls.cache_clear()
    yield path
    connections._tls.cache_clear()


def test_a_valid_certificate_for_the_name_is_accepted_at_the_judged_address(trusted: Path) -> None:
    with receiver(answers(200, b"safe"), context=tls(trusted)) as server:
        answer = post(server.url_of("hooks.example"))

    assert answer == Response(200, "", "127.0.0.1", "", "safe")


def test_a_certificate_of_another_name_is_refused(trusted: Path) -> None:
    with receiver(context=tls(trusted)) as server:
        answer = post(server.url_of("other.example"))

    assert "The certificate of other.example was rejected: Hostname mismatch" in answer.error
    assert server.received == []


@pytest.mark.parametrize(("days", "reason"), [(1, "self-signed certificate"), (-1, "expired")])
def test_a_broken_certificate_is_refused(
    trusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, reason: str
) -> None:
    broken = certificate(tmp_path, "broken.example", days=days)
    if reason == "expired":
        monkeypatch.setenv("SSL_CERT_FILE", str(broken))
    with receiver(context=tls(broken)) as server:
        answer = post(server.url_of("broken.example"))

    assert "The certificate of broken.example was rejected" in answer.error
    assert reason in answer.error
    assert server.received == []


def test_plain_text_answer_to_a_handshake_is_a_failure(trusted: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_in_plain_text() -> None:
            caller, _ = server.accept()
            with caller, contextlib.suppress(OSError):
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                caller.recv(65536)  # until it has heard the answer

        answering = threading.Thread(target=answer_in_plain_text)
        answering.start()
        answer = post(f"https://hooks.example:{server.getsockname()[1]}/")
        answering.join(scaled(60))

    assert answer.status is None
    assert "wrong version number" in answer.error.lower().replace("_", " ")


def test_a_handshake_that_hangs_ends_in_time(trusted: Path) -> None:
    began = time.monotonic()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        answer = post(f"https://hooks.example:{deaf.getsockname()[1]}/", seconds=1)

    assert "in time" in answer.error
    assert time.monotonic() - began < scaled(30)
