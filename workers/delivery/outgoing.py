"""Send one webhook message to somebody else's server, which may be slow, broken or hostile.

The request goes only to an address that was checked beforehand. The deadline covers the whole call,
even if the server sends only one byte per second, and only the beginning of the response is read.
"""

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memory.kernel.outgoing import connections, destinations
from memory.kernel.outgoing.connections import Late, TooLong

# Maximum size of the response's header, and of the excerpt from the response's body.
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 1024
# Once the status is known, the rest of the response is only for people to read, so we wait for it
# for at most this many seconds.
BODY_SECONDS = 1.0


@dataclass(frozen=True)
class Response:
    """The result of a request: the response's status, what went wrong, and the address used.

    `status` is None if there was no response; `error` is "" if the endpoint accepted the request.
    """

    status: int | None = None
    error: str = ""
    address: str | None = None
    retry_after: str = ""
    excerpt: str = ""


def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Response:
    """POST the body to the URL within `seconds`; errors are returned, never raised."""
    deadline = time.monotonic() + seconds
    try:
        destination = destinations.parse(url)
        found = destinations.addresses(destination, seconds)
    except (destinations.AddressRefused, destinations.NotFound) as error:
        return Response(error=str(error))
    try:
        connected, address = connections.connect(found, destination.port, deadline)
    except OSError as error:
        tried = ", ".join(map(str, found))
        return Response(error=f"No connection to {tried}: {_words(error, seconds)}")
    try:
        with connections.post(
            connected, destination, body, headers, deadline=deadline, max_bytes=READ_BYTES
        ) as (response, wire):
            wire.deadline = min(wire.deadline, time.monotonic() + BODY_SECONDS)
            answer = Response(
                status=response.status,
                error=_problem(response.status),
                retry_after=response.getheader("Retry-After", ""),
                excerpt=_beginning(response),
            )
    except ssl.SSLCertVerificationError as error:
        reason = f"The certificate of {destination.host} was rejected: {error.verify_message}."
        answer = Response(error=reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer = Response(error=_words(error, seconds))
    return replace(answer, address=str(address))


def _problem(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"The endpoint returned {status}; redirects are not followed: give the final URL."
    return f"The endpoint returned {status}."


def _beginning(response: http.client.HTTPResponse) -> str:
    """Return as much of the beginning of the response body as arrives in time."""
    read = b""
    try:
        while len(read) < EXCERPT_BYTES and (more := response.read1(EXCERPT_BYTES - len(read))):
            read += more
    except (OSError, http.client.HTTPException, ValueError):
        pass
    return read.decode(errors="replace").replace("\0", "�")[:EXCERPT_BYTES]


def _words(error: Exception, seconds: float) -> str:
    if isinstance(error, Late | TimeoutError):
        return f"There was no response in time ({seconds:g} s)."
    if isinstance(error, TooLong):
        return f"The response's header is longer than {READ_BYTES} bytes."
    if isinstance(error, http.client.RemoteDisconnected):
        return "The connection was closed without a response."
    return f"{type(error).__name__}: {error}"[:500].replace("\0", "�")
