"""Connections to other servers, ended by a deadline even if the peer sends one byte per second."""

import functools
import io
import socket
import ssl
import time
from collections.abc import Sequence

from memory.delivery.destinations import Address

CHUNK_BYTES = 64 * 1024
# If one of several addresses does not answer, it must not use up all the time.
CONNECT_SECONDS = 5.0


class Late(OSError):
    """The deadline has passed."""


class TooLong(OSError):
    """The response exceeds the maximum size."""


def connect(found: Sequence[Address], port: int, deadline: float) -> tuple[socket.socket, Address]:
    """Connect to the first of the addresses that answers; raises OSError."""
    failure: OSError = Late()
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


def encrypt(plain: socket.socket, host: str, deadline: float) -> socket.socket:
    """Upgrade the connection to TLS, verify the host's certificate, and return the connection."""
    plain.settimeout(max(deadline - time.monotonic(), 0.001))
    return _tls().wrap_socket(plain, server_hostname=host)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return a context with the system's certificate authorities, or those in SSL_CERT_FILE."""
    return ssl.create_default_context()


class Wire:
    """A connected socket, in the form that `http.client` uses.

    Every operation ends by the deadline, and no more than `max_bytes` are read.
    """

    def __init__(self, connected: socket.socket, deadline: float, max_bytes: int) -> None:
        self.deadline = deadline
        self.max_bytes = max_bytes
        self._socket = connected

    def sendall(self, data: bytes) -> None:
        """Send all data piece by piece, since a receiver may accept only one byte per second."""
        view = memoryview(data)
        while view:
            self._hurry()
            view = view[self._socket.send(view[:CHUNK_BYTES]) :]

    def receive(self, buffer: memoryview) -> int:
        """Read the available bytes into the buffer; return their number, 0 at the end."""
        self._hurry()
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of the response."""
        return io.BufferedReader(_Received(self), buffer_size=4096)

    def close(self) -> None:
        """Do nothing: whoever opened the connection closes it after reading the response."""

    def _hurry(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Late
        self._socket.settimeout(left)


class _Received(io.RawIOBase):
    """The bytes received over a wire, up to a limit."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self._left = wire.max_bytes

    def readable(self) -> bool:
        """Return True, as `BufferedReader` requires."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read the available bytes that fit; return their number, 0 at the end. Raises TooLong."""
        if not self._left:
            raise TooLong
        number = self._wire.receive(buffer[: self._left])
        self._left -= number
        return number
