"""The format of all of the API's error responses: problem details (RFC 9457).

`PROBLEMS` lists all kinds of errors; docs/api.md has the same table.
"""

import re
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from django.http import HttpResponse, JsonResponse

CONTENT_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-Id"
NAMESPACE = "urn:uac:problem:"
CHANGED = (
    "The content has changed, or `If-Match` does not match its ETag. Read it again, and send the"
    " ETag of that response."
)


_IN_A_LINE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True)
class Problem:
    """A kind of error: the last part of its `type`, its status, and what it means to the client."""

    name: str
    status: int
    meaning: str


# The first kind listed for a status is the default for that status.
PROBLEMS = (
    Problem("malformed-request", 400, "The URL, a header or the body cannot be parsed."),
    Problem("invalid-fields", 400, "`errors` names each invalid field and how to fix it."),
    Problem("no-key", 401, "The API key is missing, unknown, expired or revoked."),
    Problem(
        "not-allowed", 403, "The key lacks the required scope, or the request is never allowed."
    ),
    Problem("no-room", 403, "A quota of the workspace is exceeded: `limit` names it."),
    Problem(
        "not-found", 404, "The resource or endpoint does not exist, or this key cannot access it."
    ),
    Problem("method-not-allowed", 405, "The endpoint does not allow the method. See `Allow`."),
    Problem("not-acceptable", 406, "The `Accept` header allows none of the available formats."),
    Problem("conflict", 409, "The request conflicts with the current state."),
    Problem(
        "in-progress",
        409,
        "The first request with this `Idempotency-Key` is still being processed.",
    ),
    Problem("user-merged", 409, "The user was merged into another user. Use that user instead."),
    Problem(
        "not-computable",
        409,
        "There is no exact state for that point in time: `detail` says what to request instead.",
    ),
    Problem(
        "redacted",
        410,
        "The content was redacted or is based on redacted content, and is no longer returned.",
    ),
    Problem("changed", 412, "The content no longer matches `If-Match`. Read it again."),
    Problem("too-large", 413, "The body is larger than the server accepts. Send it in parts."),
    Problem("unsupported-media-type", 415, "The `Content-Type` is not supported here."),
    Problem(
        "wrong-host",
        421,
        "The server does not accept requests for this host (sent by the process `mcp` only).",
    ),
    Problem("unprocessable", 422, "The request is well formed but cannot be carried out."),
    Problem("code-failed", 422, "The code of a query or constraint failed. See `error`."),
    Problem(
        "no-value",
        422,
        "The code ran, but its last statement has no value: `detail` says how to end it. What it"
        " printed is in `stdout`.",
    ),
    Problem(
        "gate-refused",
        422,
        "The gate refused the change: `verdict` has each check's findings.",
    ),
    Problem(
        "content-refused",
        422,
        "The workspace's content policy does not allow a secret or personal data: `errors` names"
        " the fields.",
    ),
    Problem("no-answer", 422, "The language model did not reach an answer. See `error`."),
    Problem("key-reused", 422, "The `Idempotency-Key` was used for a different request."),
    Problem(
        "too-many-requests", 429, "A rate limit is exceeded: `limit` names it. See `Retry-After`."
    ),
    Problem(
        "server-error", 500, "The server failed. Give the `request_id` to the server's operator."
    ),
    Problem("unavailable", 503, "Temporarily unavailable. See `Retry-After`."),
    Problem("being-redacted", 503, "A redaction is under way. See `Retry-After`."),
)
_BY_STATUS = {one.status: one.name for one in reversed(PROBLEMS)}


def request_id(given: str) -> str:
    """Return the request id that the caller sent if it is safe to log, otherwise a new one."""
    return given if _IN_A_LINE.fullmatch(given) else str(uuid.uuid4())


def problem(status_code: int, detail: str, name: str = "") -> dict[str, Any]:
    """Return problem details of the kind `name`, or of the default kind for the status."""
    document = {
        "type": NAMESPACE + (name or _BY_STATUS[status_code]),
        "title": HTTPStatus(status_code).phrase,
        "status": status_code,
        "detail": detail,
    }
    named = structlog.contextvars.get_contextvars().get("request_id")
    return {**document, "request_id": named} if named else document


def answer(status_code: int, detail: str, **more: Any) -> HttpResponse:
    """Return an error response with problem details, including the extra members in `more`."""
    return JsonResponse(
        {**problem(status_code, detail), **more}, status=status_code, content_type=CONTENT_TYPE
    )
