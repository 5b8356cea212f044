"""One POST to somebody else's server, which may be slow, broken or hostile.

It goes to an address that was judged before and to no other: no redirect is followed, no proxy of
the environment is used. All of it ends by a deadline, even against a byte a second, and no more of
the answer is read than its beginning.
"""

import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memory import destinations
from memory.destinations import Address, Destination

# Of the answer: its header, and the beginning of its body.
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 1024
CHUNK_BYTES = 64 * 1024
# When the status is known, the body is only for people to read: it gets no more time than this.
BODY_SECONDS = 1.0
# One address of several that does not answer must not take all the time.
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What came of a call: a status, or an error without one; the address that was called."""

    status: int | None = None
    error: str = ""
    address: str | None = None
    retry_after: str = ""
    excerpt: str = ""


class _Late(OSError):
    """The deadline has passed."""


class _TooLong(OSError):
    """READ_BYTES have come, and more does."""


def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answer:
    """Send the body to the URL, within so many seconds; never raises for what the others do."""
    deadline = time.monotonic() + seconds
    try:
        destination = destinations.parse(url)
        found = destinations.addresses(destination, seconds)
    except (destinations.Refused, destinations.NotFound) as error:
        return Answer(error=str(error))
    try:
        connected, address = _connect(found, destination.port, deadline)
    except OSError as error:
        tried = ", ".join(map(str, found))
        return Answer(error=f"No connection to {tried}: {_words(error, seconds)}")
    try:
        with connected, _encrypted(connected, destination, deadline) as encrypted:
            answer = _exchange(_Wire(encrypted, deadline), destination, body, headers)
    except ssl.SSLCertVerificationError as error:
        reason = f"The certificate of {destination.host} is refused: {error.verify_message}."
        answer = Answer(error=reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer = Answer(error=_words(error, seconds))
    return replace(answer, address=str(address))


def _connect(found: list[Address], port: int, deadline: float) -> tuple[socket.socket, Address]:
    failure: OSError = _Late()
    for address in found:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            timeout = min(left, CONNECT_SECONDS)
            connected = socket.create_connection((str(address), port), timeout=timeout)
        except OSError as error:
            failure = error
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected, address
    raise failure


def _encrypted(plain: socket.socket, destination: Destination, deadline: float) -> socket.socket:
    if destination.scheme == "http":
        return plain
    plain.settimeout(max(deadline - time.monotonic(), 0.001))
    return _tls().wrap_socket(plain, server_hostname=destination.host)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The system's authorities, or those that the environment names (SSL_CERT_FILE)."""
    return ssl.create_default_context()


def _exchange(
    wire: "_Wire", destination: Destination, body: bytes, headers: Mapping[str, str]
) -> Answer:
    connection = http.client.HTTPConnection(destination.host, destination.port)
    connection.sock = wire
    own = {"Host": destination.authority, "Connection": "close"}
    connection.request("POST", destination.target, body, {**own, **headers})
    response = connection.getresponse()
    wire.deadline = min(wire.deadline, time.monotonic() + BODY_SECONDS)
    return Answer(
        status=response.status,
        error=_problem(response.status),
        retry_after=response.getheader("Retry-After", ""),
        excerpt=_beginning(response),
    )


def _problem(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"It answered {status}, and redirects are not followed: give the final URL."
    return f"It answered {status}."


def _beginning(response: http.client.HTTPResponse) -> str:
    """Return the beginning of the body, as far as it comes in time."""
    read = b""
    try:
        while len(read) < EXCERPT_BYTES and (more := response.read1(EXCERPT_BYTES - len(read))):
            read += more
    except (OSError, http.client.HTTPException, ValueError):
        pass
    return read.decode(errors="replace").replace("\0", "�")[:EXCERPT_BYTES]


def _words(error: Exception, seconds: float) -> str:
    if isinstance(error, _Late | TimeoutError):
        return f"There was no answer in time ({seconds:g} s)."
    if isinstance(error, _TooLong):
        return f"The answer's header is longer than {READ_BYTES} bytes."
    if isinstance(error, http.client.RemoteDisconnected):
        return "The connection was closed without an answer."
    return f"{type(error).__name__}: {error}"[:500].replace("\0", "�")


class _Wire:
    """A connected socket as `http.client` uses one. Every operation ends by the deadline."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.deadline = deadline
        self._socket = connected

    def sendall(self, data: bytes) -> None:
        """Send all, piece by piece, since a receiver may take a byte a second."""
        view = memoryview(data)
        while view:
            self._hurry()
            view = view[self._socket.send(view[:CHUNK_BYTES]) :]

    def receive(self, buffer: memoryview) -> int:
        """Read what has come; 0 at the end."""
        self._hurry()
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what the answer is read from."""
        return io.BufferedReader(_Received(self), buffer_size=4096)

    def close(self) -> None:
        """Nothing: the connection is closed by whoever has opened it, when the answer is read."""

    def _hurry(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise _Late
        self._socket.settimeout(left)


class _Received(io.RawIOBase):
    """What comes over a wire, READ_BYTES at most."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__()
        self._wire = wire
        self._left = READ_BYTES

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read what there is room for, 0 at the end."""
        if not self._left:
            raise _TooLong
        number = self._wire.receive(buffer[: self._left])
        self._left -= number
        return number
