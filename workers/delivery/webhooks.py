"""Send webhook messages to somebody else's server, which may be slow, broken or hostile.

Messages about the same alert stay in order, and are sent until the endpoint accepts them. If a
worker is killed after sending a message but before recording that it was sent, its lease expires,
and the message is sent again with the same ID.

A request goes only to an address that was checked beforehand. The deadline covers the whole call,
even if the server sends only one byte per second, and only the beginning of the response is read.
"""

import datetime
import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog
from django.conf import settings
from django.utils import timezone

from memory.alerts.delivery import delivery_attempts, webhook_messages
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.kernel import encryption
from memory.kernel.outgoing import connections, destinations
from memory.kernel.outgoing.connections import Late, TooLong
from memory.kernel.work import leases

logger = structlog.get_logger(__name__)

# How long to wait before retrying an endpoint whose secret can't be read. Once the operator has
# fixed the problem, delivery resumes automatically.
UNREADABLE_WAIT = datetime.timedelta(minutes=5)
# Maximum size of the response's header, and of the excerpt from the response's body.
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 1024
# Once the status is known, the rest of the response is only for people to read, so we wait for it
# for at most this many seconds.
BODY_SECONDS = 1.0


def send(delivery: Delivery) -> bool:
    """Send a message that the caller has claimed; return True: the endpoint may have others."""
    began_at, began = timezone.now(), time.monotonic()
    try:
        headers = webhook_messages.signed_headers(delivery, began_at)
    except encryption.EncryptionError as error:
        leases.release(
            delivery,
            attempts=delivery.attempts - 1,  # this isn't an attempt, since no request was sent
            run_after=began_at + UNREADABLE_WAIT,
            last_error=str(error),
        )
        logger.error("webhook_secret_unreadable", endpoint=str(delivery.endpoint_id))
        return True
    answer = post(
        delivery.endpoint.url,
        delivery.payload.encode(),
        headers,
        seconds=settings.UAC_WEBHOOK_TIMEOUT_SECONDS,
    )
    attempt = DeliveryAttempt(
        delivery=delivery,
        at=began_at,
        seconds=round(time.monotonic() - began, 3),
        status=answer.status,
        error=answer.error,
        address=answer.address,
        answer=answer.excerpt,
    )
    delivery_attempts.record(attempt, retry_after=answer.retry_after)
    logger.info(
        "webhook_called",
        endpoint=str(delivery.endpoint_id),
        delivery=str(delivery.pk),
        status=answer.status,
        seconds=attempt.seconds,
        delivered=not answer.error,
    )
    return True


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
        addresses = destinations.addresses(destination, seconds)
    except (destinations.AddressRefused, destinations.NotFound) as error:
        return Response(error=str(error))
    try:
        connected, address = connections.connect(addresses, destination.port, deadline)
    except OSError as error:
        tried = ", ".join(map(str, addresses))
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
