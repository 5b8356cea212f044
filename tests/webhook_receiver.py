"""A receiver of webhooks to test with: a local HTTP or HTTPS server that behaves as it is told.

    with receiver(answers(500), answers(200)) as server:
        … server.url … server.received

The behaviours are taken in their order, the last one for ever. A behaviour may write anything to
the connection, at any pace. What does not fit into an answer of HTTP is made by `says`.
"""

import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True)
class Received:
    """A call as it was received."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        """Return the message; raise WebhookVerificationError unless signed with the secret."""
        message: dict[str, Any] = Webhook(secret).verify(self.body, dict(self.headers))
        return message

    def verifies(self, secret: str) -> bool:
        """Return whether it is signed with the secret."""
        try:
            self.verified(secret)
        except WebhookVerificationError:
            return False
        return True


@dataclass
class Call:
    """A call in progress, for a behaviour to answer."""

    handler: BaseHTTPRequestHandler
    received: Received
    closing: threading.Event = field(default_factory=threading.Event)

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def wait(self, seconds: float) -> None:
        """Wait, but no longer than until the server is closed."""
        self.closing.wait(seconds)


Behaviour: TypeAlias = Callable[[Call], None]


def says(data: bytes) -> Behaviour:
    """Write this and close the connection."""
    return lambda call: call.write(data)


def answers(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer properly; `retry_after` becomes Retry-After."""
    lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return says("\r\n".join([*lines, "", ""]).encode() + body)


def hangs(call: Call) -> None:
    """Accept the call and never answer, until the server is closed."""
    call.wait(3600)


def drips(data: bytes, every: float) -> Behaviour:
    """Write a byte, wait, write the next."""

    def behave(call: Call) -> None:
        for number in range(len(data)):
            if call.closing.is_set():
                break
            call.write(data[number : number + 1])
            call.wait(every)

    return behave


class Receiver:
    """The running server."""

    def __init__(
        self,
        behaviours: tuple[Behaviour, ...],
        context: ssl.SSLContext | None,
        port: int = 0,
        address: str = "127.0.0.1",
    ) -> None:
        self.received: list[Received] = []
        self._behaviours = behaviours
        self._lock = threading.Lock()
        self._closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                receiver._serve(self)

        self._address = address
        self._http = _Http((address, port), Handler)
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self._http.socket = context.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def url(self) -> str:
        return self.url_of(self._address)

    def url_of(self, host: str) -> str:
        """Return the address under another name."""
        return f"{self._scheme}://{host}:{self.port}/hook"

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        received = Received(handler.path, headers, body)
        with self._lock:
            number = len(self.received)
            self.received.append(received)
        behaviour = self._behaviours[min(number, len(self._behaviours) - 1)]
        with contextlib.suppress(OSError):  # the caller has gone
            behaviour(Call(handler, received, self._closing))
        handler.close_connection = True


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *args: Any) -> None:
        """Ignore callers that disconnect in the middle, which some tests are about."""


@contextmanager
def receiver(
    *behaviours: Behaviour,
    context: ssl.SSLContext | None = None,
    port: int = 0,
    address: str = "127.0.0.1",
) -> Iterator[Receiver]:
    """Run a receiver with these behaviours; without any, it accepts everything."""
    server = Receiver(behaviours or (answers(200),), context, port, address)
    try:
        yield server
    finally:
        server.close()


def certificate(folder: Path, *names: str, days: int = 1) -> Path:
    """Make a self-signed certificate of these hosts with its key, and return the file's path.

    With a negative number of days it has expired.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    alternatives: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
        for name in names
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{names[0]}-{days}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def tls(path: Path) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
