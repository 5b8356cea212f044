"""Read a client's requests strictly: reject every request that is ambiguous in any way."""

import re
import socket
import time
from dataclasses import dataclass
from urllib.parse import parse_qsl

# Maximum size, in bytes, of a request's head and of its body (the template takes about 20 KB).
HEAD_BYTES = 16 * 1024
BODY_BYTES = 128 * 1024
READ_BYTES = 256 * 1024
# Seconds that a client has to send its whole request, and again to receive the response.
CLIENT_SECONDS = 10

# Matches only requests for the API version that the template was written for, or a newer version:
# in older versions, the same request has a different meaning.
REQUEST_LINE = re.compile(
    r"([A-Z]{3,7}) (?:/v1\.(?:4[1-9]|[5-9][0-9]))?"
    r"(/(?:[A-Za-z0-9_.:/-]|%40)*)(?:\?([!-~]*))? HTTP/1\.1"
)
HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*([\t -~]*)")


class RequestDenied(Exception):
    """A request was denied; `status` is the HTTP status of the response."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Request:
    """A client's request; `rest` holds any bytes received after the request."""

    method: str
    path: str  # the path without the API version
    query: dict[str, str]
    body: bytes
    rest: bytes


def receive(connection: socket.socket, deadline: float) -> bytes:
    """Return the next bytes, empty at the end of the stream.

    Raises TimeoutError after the deadline.
    """
    connection.settimeout(max(deadline - time.monotonic(), 0.001))
    return connection.recv(READ_BYTES)


def read_head(connection: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Read a request's head, including the empty line; return it and any bytes that follow it."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > HEAD_BYTES:
            raise RequestDenied("the head of the request is too large", 431)
        more = receive(connection, deadline)
        if not more:
            raise EOFError
        data += more
    if end > HEAD_BYTES:
        raise RequestDenied("the head of the request is too large", 431)
    return data[: end + 4], data[end + 4 :]


def read_request(connection: socket.socket) -> Request:
    """Read one request.

    Raises RequestDenied if the request is malformed, too large or ambiguous in any way, EOFError if
    the client disconnects before the end of the request.
    """
    deadline = time.monotonic() + CLIENT_SECONDS
    head, rest = read_head(connection, deadline)
    try:
        first, *lines = head[:-4].decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise RequestDenied("the head of the request is not ASCII", 400) from None
    match = REQUEST_LINE.fullmatch(first)
    if match is None:
        raise RequestDenied(f"{first[:100]!r} is not a request that sandbox workers send")
    method, path, query = match.groups()
    if "//" in path or "/." in path or "./" in path:
        raise RequestDenied(f"the path {path[:100]} is not normalized")
    length = _length(lines)
    while len(rest) < length:
        more = receive(connection, deadline)
        if not more:
            raise EOFError
        rest += more
    return Request(method, path, _query(query or ""), rest[:length], rest[length:])


def _length(lines: list[str]) -> int:
    headers: dict[str, str] = {}
    for line in lines:
        header = HEADER.fullmatch(line)
        if header is None:
            raise RequestDenied("a malformed header", 400)
        name = header[1].lower()
        if name in headers:
            raise RequestDenied(f"the header {name} is repeated", 400)
        headers[name] = header[2].strip()
    if "transfer-encoding" in headers or "expect" in headers or "trailer" in headers:
        raise RequestDenied("a body without Content-Length", 411)
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"\d{1,9}", length, re.ASCII):
        raise RequestDenied("Content-Length is not a number", 400)
    if int(length) > BODY_BYTES:
        raise RequestDenied("the body is too large", 413)
    return int(length)


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=9)
    except ValueError:
        raise RequestDenied("malformed query parameters", 400) from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise RequestDenied("a query parameter is repeated", 400)
    return dict(pairs)
