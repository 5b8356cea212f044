"""Requests to other servers, with a hard deadline no matter how slowly the server sends.

A request goes only to an address that its caller has looked up: redirects are not followed, and
proxies from the environment are not used.
"""

import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from memory.kernel.outgoing.destinations import Address, Destination

CHUNK_BYTES = 64 * 1024
# Time limit per address, so that an unresponsive address leaves time to try the others.
CONNECT_SECONDS = 5.0


class Late(OSError):
    """The connection's deadline has passed."""


class TooLong(OSError):
    """The response is larger than the maximum size."""


def connect(
    addresses: Sequence[Address], port: int, deadline: float
) -> tuple[socket.socket, Address]:
    """Connect to the first of these addresses that responds; raises OSError if none does."""
    failure: OSError = Late()
    for address in addresses:
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


@contextmanager
def post(
    connected: socket.socket,
    destination: Destination,
    body: bytes,
    headers: Mapping[str, str],
    *,
    deadline: float,
    max_bytes: int,
) -> Iterator[tuple[http.client.HTTPResponse, "Wire"]]:
    """Send a POST request, and yield its response and the wire from which that is read.

    The connection is closed afterwards. Raises OSError (TimeoutError or Late once the deadline has
    passed, TooLong if the response is larger than `max_bytes`), HTTPException or ValueError.
    """
    with connected, _encrypted(connected, destination, deadline) as encrypted:
        wire = Wire(encrypted, deadline, max_bytes)
        connection = http.client.HTTPConnection(destination.host, destination.port)
        connection.sock = wire
        own = {"Host": destination.authority, "Connection": "close"}
        connection.request("POST", destination.target, body, {**own, **headers})
        yield connection.getresponse(), wire


def _encrypted(
    connected: socket.socket, destination: Destination, deadline: float
) -> socket.socket:
    """Return the connection, upgraded to TLS with the host's certificate verified if need be."""
    if destination.scheme == "http":
        return connected
    connected.settimeout(max(deadline - time.monotonic(), 0.001))
    return _tls().wrap_socket(connected, server_hostname=destination.host)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificate authorities, or SSL_CERT_FILE."""
    return ssl.create_default_context()


class Wire:
    """A connected socket with the interface that `http.client` expects.

    Every operation finishes by the deadline, and at most `max_bytes` bytes of the response are
    read.
    """

    def __init__(self, connected: socket.socket, deadline: float, max_bytes: int) -> None:
        self.deadline = deadline
        self.max_bytes = max_bytes
        self._socket = connected

    def sendall(self, data: bytes) -> None:
        """Send data in chunks, checking the deadline before each; receivers may be slow."""
        view = memoryview(data)
        while view:
            self._hurry()
            view = view[self._socket.send(view[:CHUNK_BYTES]) :]

    def receive(self, buffer: memoryview) -> int:
        """Read available bytes into the buffer; return how many were read, or 0 at the end."""
        self._hurry()
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a buffered reader for the response."""
        return io.BufferedReader(_Received(self), buffer_size=4096)

    def close(self) -> None:
        """Do nothing: whoever opened the socket closes it after reading the response."""

    def _hurry(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Late
        self._socket.settimeout(left)


class _Received(io.RawIOBase):
    """A raw stream of the bytes received over a `Wire`, up to its limit."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self._left = wire.max_bytes

    def readable(self) -> bool:
        """Return True, as `BufferedReader` requires."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read available bytes into the buffer; return how many were read, or 0 at the end.

        Raises TooLong once `max_bytes` bytes have been read.
        """
        if not self._left:
            raise TooLong
        number = self._wire.receive(buffer[: self._left])
        self._left -= number
        return number
