"""A provider's API (`POST {base URL}/embeddings` in OpenAI's protocol) and its failures."""

import email.utils
import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from django.utils import timezone

from memory.kernel.outgoing import connections, destinations
from memory.kernel.outgoing.destinations import Destination
from memory.kernel.settings.language_models import Connection, Usage
from memory.llm.models import LlmOutcome
from memory.recall.search.embeddings.interface import Floats

# No model's vectors have more dimensions than this.
MAX_DIMENSIONS = 16_384
# The maximum size of a response in bytes: a fixed part, plus a part for each text's vector, whose
# numbers are in decimal notation.
ANSWER_BYTES, ANSWER_BYTES_OF_TEXT = 1024 * 1024, 24 * MAX_DIMENSIONS
_SUMMARIES = {
    LlmOutcome.TIMEOUT: "did not respond in time",
    LlmOutcome.CONNECTION_LOST: "cannot be reached, or dropped the connection",
    LlmOutcome.RATE_LIMITED: "reports that this key is over its rate limit",
    LlmOutcome.UNAVAILABLE: "has failed or is overloaded",
    LlmOutcome.WRONG_KEY: "rejects the key: check UAC_EMBEDDINGS_API_KEY",
    LlmOutcome.NO_CREDIT: "reports that the account has no credit or quota left",
    LlmOutcome.UNKNOWN_MODEL: "does not exist at the provider: check UAC_EMBEDDINGS and"
    " UAC_EMBEDDINGS_BASE_URL",
    LlmOutcome.REJECTED: "rejects the request",
    LlmOutcome.INVALID_ANSWER: "returned something other than embeddings",
}
_STATUSES = {
    401: LlmOutcome.WRONG_KEY,
    402: LlmOutcome.NO_CREDIT,
    403: LlmOutcome.WRONG_KEY,
    404: LlmOutcome.UNKNOWN_MODEL,
    408: LlmOutcome.UNAVAILABLE,
    409: LlmOutcome.UNAVAILABLE,
    425: LlmOutcome.UNAVAILABLE,
    429: LlmOutcome.RATE_LIMITED,
}
_PASSING = (
    LlmOutcome.TIMEOUT,
    LlmOutcome.CONNECTION_LOST,
    LlmOutcome.RATE_LIMITED,
    LlmOutcome.UNAVAILABLE,
)
# Failures that the texts may have caused, so that other texts may succeed.
_OF_TEXTS = (LlmOutcome.REJECTED, LlmOutcome.INVALID_ANSWER)


class CallFailed(Exception):
    """A call returned no vectors. The message is our own: the provider's might quote the texts."""

    def __init__(
        self,
        outcome: LlmOutcome,
        name: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        unsent: bool = False,
        passing: bool | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(f"{name} {_SUMMARIES[outcome]}" + (f" ({detail})." if detail else "."))
        self.outcome = outcome
        self.status = status
        self.retry_after = retry_after
        self.unsent = unsent
        self.passing = outcome in _PASSING if passing is None else passing

    @property
    def may_be_of_texts(self) -> bool:
        """True if the texts may have caused the failure, so that other texts may succeed.

        Some servers fail on certain texts instead of rejecting them.
        """
        has_failed = self.status == 500 and self.retry_after is None
        return self.outcome in _OF_TEXTS or has_failed


def request_embeddings(
    connection: Connection, body: bytes, seconds: float, number: int, name: str
) -> Mapping[str, Any]:
    """Send a request to the provider and return its JSON response; raises CallFailed."""
    deadline = time.monotonic() + seconds
    destination = _destination(connection)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if connection.api_key:
        headers["Authorization"] = f"Bearer {connection.api_key}"
    most = ANSWER_BYTES + number * ANSWER_BYTES_OF_TEXT
    try:
        # The operator has chosen the URL, so any address is allowed.
        addresses = destinations.look_up(destination.host, destination.port, seconds)
        connected, _ = connections.connect(addresses, destination.port, deadline)
    except (destinations.NotFound, TimeoutError, OSError) as error:
        is_late = isinstance(error, TimeoutError | connections.Late)
        outcome = LlmOutcome.TIMEOUT if is_late else LlmOutcome.CONNECTION_LOST
        raise CallFailed(outcome, name, type(error).__name__, unsent=True) from error
    try:
        with connections.post(
            connected, destination, body, headers, deadline=deadline, max_bytes=most
        ) as (response, _):
            status, answer = response.status, response.read()
            retry_after = response.getheader("Retry-After", "")
    except (TimeoutError, connections.Late) as error:
        raise CallFailed(LlmOutcome.TIMEOUT, name, f"{seconds:.1f} s") from error
    except connections.TooLong as error:
        raise CallFailed(LlmOutcome.INVALID_ANSWER, name, "the response is too long") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallFailed(LlmOutcome.CONNECTION_LOST, name, type(error).__name__) from error
    if status != 200:
        raise _refused(status, retry_after, answer, name)
    try:
        payload = json.loads(answer)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        # This may be a response from a proxy in front of the provider, so a retry may succeed.
        raise CallFailed(
            LlmOutcome.INVALID_ANSWER, name, "the response is not a JSON object", passing=True
        )
    return payload


def _destination(connection: Connection) -> Destination:
    parts = urlsplit(connection.base_url)
    port = parts.port or destinations.PORTS[parts.scheme]
    target = f"{parts.path.rstrip('/')}/embeddings"
    return Destination(parts.scheme, parts.hostname or "", port, target)


def _refused(status: int, retry_after: str, answer: bytes, name: str) -> CallFailed:
    outcome = _STATUSES.get(status)
    if outcome is None and 400 <= status < 500:
        outcome = LlmOutcome.REJECTED
    elif outcome is None:
        outcome = LlmOutcome.UNAVAILABLE if status >= 500 else LlmOutcome.INVALID_ANSWER
    if outcome == LlmOutcome.RATE_LIMITED and b'"insufficient_quota"' in answer:
        outcome = LlmOutcome.NO_CREDIT
    wait = _seconds(retry_after)
    return CallFailed(outcome, name, f"status {status}", retry_after=wait, status=status)


def _seconds(retry_after: str) -> float | None:
    """Return a Retry-After value in seconds, or None if it can't be parsed."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(retry_after)
            seconds = (moment - timezone.now()).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if seconds < 10**9 else None


def read_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the token usage in a response, or None if it is missing or implausible."""
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens < 10**12:
        return None
    return Usage(input_tokens=tokens, output_tokens=0)


def read_vectors(
    answer: Mapping[str, Any], number: int, dimensions: int | None, name: str
) -> Floats:
    """Return a response's vectors, scaled to unit length, in the same order as the texts."""

    def wrong(detail: str) -> CallFailed:
        return CallFailed(LlmOutcome.INVALID_ANSWER, name, detail)

    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise wrong("the response has no data")
    if len(data) != number:
        raise wrong(f"{len(data)} vectors for {number} texts")
    placed = {one["index"]: one.get("embedding") for one in data if type(one.get("index")) is int}
    if set(placed) != set(range(number)):
        raise wrong("the indexes do not match the texts")
    try:
        with np.errstate(over="ignore"):
            rows = np.array([placed[index] for index in range(number)], np.float32)
    except (ValueError, TypeError, OverflowError):
        raise wrong(
            "a vector is not a list of numbers, or differs in length from the others"
        ) from None
    if rows.ndim != 2 or not 0 < rows.shape[1] <= MAX_DIMENSIONS:
        raise wrong("a vector is not a list of numbers")
    if dimensions is not None and rows.shape[1] != dimensions:
        raise wrong(f"vectors with {rows.shape[1]} dimensions, not {dimensions}")
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise wrong("a vector is not finite")
    unit: Floats = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit
