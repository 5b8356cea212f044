"""The form of all errors: problem details (RFC 9457).

`PROBLEMS` lists all kinds; docs/api.md has the same table.
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
    "This has changed since it was read, or If-Match names no ETag of it: read it again, and send"
    " the ETag of that answer."
)


_IN_A_LINE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True)
class Problem:
    """A kind of error: the last part of its `type`, its status, and the client's remedy."""

    name: str
    status: int
    meaning: str


# The first kind of a status is the default for that status.
PROBLEMS = (
    Problem("malformed-request", 400, "The address, a header or the body cannot be read."),
    Problem("invalid-fields", 400, "`errors` names each field that is wrong, and how to mend it."),
    Problem("no-key", 401, "There is no API key, or it is unknown, expired or revoked."),
    Problem("not-allowed", 403, "The key lacks the scope, or this is never allowed."),
    Problem("no-room", 403, "A quota of the workspace is used up: `limit` names it."),
    Problem("not-found", 404, "There is no such thing for this key, or no such address."),
    Problem("method-not-allowed", 405, "The address does not take the method: see `Allow`."),
    Problem("not-acceptable", 406, "The `Accept` header allows nothing that is to be had."),
    Problem("conflict", 409, "It contradicts what is there."),
    Problem("in-progress", 409, "The first request with this `Idempotency-Key` is still going on."),
    Problem("user-merged", 409, "The user was merged into another: name that one instead."),
    Problem("cannot-be-told", 409, "No exact state of that moment: `detail` says what to ask."),
    Problem("redacted", 410, "It rests on what was redacted, and is not told any more."),
    Problem("changed", 412, "It is not what `If-Match` names any more: read it again."),
    Problem("too-large", 413, "The body is larger than the server takes: send it in parts."),
    Problem("unsupported-media-type", 415, "The `Content-Type` is none that is read here."),
    Problem("wrong-host", 421, "The server does not answer to this host (the process `mcp`)."),
    Problem("unprocessable", 422, "It is well formed, and cannot be done."),
    Problem("code-failed", 422, "The code of a query or constraint failed: see `error`."),
    Problem("gate-refused", 422, "The gate refused it: `verdict` has what each check found."),
    Problem("no-answer", 422, "The language model came to no answer: see `error`."),
    Problem("key-reused", 422, "The `Idempotency-Key` belongs to another request."),
    Problem("too-many-requests", 429, "A rate is used up: `limit` names it; see `Retry-After`."),
    Problem("server-error", 500, "The server failed. Name the `request_id` to who runs it."),
    Problem("not-implemented", 501, "There is nothing here that it could mean."),
    Problem("unavailable", 503, "The server can tell in a moment: see `Retry-After`."),
    Problem("being-redacted", 503, "Something is being redacted: see `Retry-After`."),
)
_BY_STATUS = {one.status: one.name for one in reversed(PROBLEMS)}


def request_id(given: str) -> str:
    """Return the caller's id for a request, if it is valid in a log line, or a new one."""
    return given if _IN_A_LINE.fullmatch(given) else str(uuid.uuid4())


def problem(status_code: int, detail: str, name: str = "") -> dict[str, Any]:
    """Return the problem details of an error: of the kind `name`, or the default of its status."""
    found = {
        "type": NAMESPACE + (name or _BY_STATUS[status_code]),
        "title": HTTPStatus(status_code).phrase,
        "status": status_code,
        "detail": detail,
    }
    named = structlog.contextvars.get_contextvars().get("request_id")
    return {**found, "request_id": named} if named else found


def answer(status_code: int, detail: str, **more: Any) -> HttpResponse:
    """Return an error response with problem details and further members."""
    return JsonResponse(
        {**problem(status_code, detail), **more}, status=status_code, content_type=CONTENT_TYPE
    )
