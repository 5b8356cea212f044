"""The API's errors: problem details (`memory.kernel.http.problems`) that name bad fields."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DatabaseError, Error
from django.http import HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions, serializers, status
from rest_framework.response import Response

from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.database import timeouts
from memory.kernel.http.problems import CHANGED, CONTENT_TYPE, NAMESPACE, PROBLEMS, answer, problem
from memory.kernel.http.stored import AnyObjectField
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Erased, Refused
from memory.kernel.users import is_erased

logger = structlog.get_logger(__name__)


class Conflict(exceptions.APIException):
    """The request conflicts with the current state (409)."""

    status_code = status.HTTP_409_CONFLICT
    problem = ""


@contextmanager
def as_conflict(*refusals: type[Exception]) -> Iterator[None]:
    """Turn these errors and their subclasses into a Conflict with the same message.

    If a subclass has another status, use `except` clauses instead, the subclass first.
    """
    try:
        yield
    except refusals as error:
        raise Conflict(str(error)) from None


class Unprocessable(exceptions.APIException):
    """The request is well formed but cannot be carried out (422)."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    problem = ""


class Incompatible(Unprocessable):
    """A field is valid, but cannot be combined with another field of the request (422)."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.errors = {field: [detail]}


class Unavailable(exceptions.APIException):
    """The content is temporarily unavailable (503)."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    problem = ""
    # In seconds; the framework sends it as `Retry-After`.
    wait = 1


class Refusal(exceptions.APIException):
    """A rule of the server refused the request, with a status and a kind of problem of its own."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.status_code = refused.status
        self.problem = refused.problem
        self.errors = refused.errors
        self.wait = Unavailable.wait if refused.status == Unavailable.status_code else None


class PayloadTooLarge(exceptions.APIException):
    """The body is larger than the server accepts (413)."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE

    def __init__(self) -> None:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        super().__init__(f"The body exceeds {limit} bytes. Send it in parts.")


class OverLimit(exceptions.APIException):
    """A limit is exceeded: a rate or concurrency limit (429; waiting helps), or a quota (403)."""

    def __init__(self, exceeded: LimitExceeded) -> None:
        super().__init__(exceeded.detail)
        self.limit = exceeded.limit
        if exceeded.wait is None:
            self.status_code, self.problem = status.HTTP_403_FORBIDDEN, "no-room"
        else:
            self.status_code, self.problem = status.HTTP_429_TOO_MANY_REQUESTS, ""
            # In seconds; the framework sends it as `Retry-After`.
            self.wait = math.ceil(exceeded.wait)


class NamesNothing(exceptions.NotFound):
    """A field is valid, but names something that does not exist (404)."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.errors = {field: [detail]}


class Changed(exceptions.APIException):
    """The content no longer matches `If-Match` (412)."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = CHANGED


class ProblemSerializer(serializers.Serializer[Any]):
    """Problem details (RFC 9457): what is wrong, and how to fix it."""

    type = serializers.ChoiceField(choices=[f"{NAMESPACE}{one.name}" for one in PROBLEMS])
    title = serializers.CharField(help_text="The name of the HTTP status.")
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="What is wrong, and how to fix it.")
    request_id = serializers.CharField(
        required=False,
        help_text="The id of the request, as in the header `X-Request-Id` and the server's log.",
    )
    errors = AnyObjectField(  # type: ignore[assignment]
        required=False,
        help_text="Field → what is wrong with it: a list of messages; in an entry or another nested"
        " object, an object of the same form.",
    )
    limit = serializers.CharField(
        required=False, help_text="The name of the exceeded rate limit (429) or quota (403)."
    )


def _kind_of(error: Exception) -> str:
    """Return the kind of problem, or an empty string if the status alone determines the kind."""
    if isinstance(error, exceptions.ValidationError):
        return "invalid-fields"
    return str(getattr(error, "problem", ""))


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn a view's exception into problem details, or return None to leave it to Django (500)."""
    match error:
        case Refused():
            error = Refusal(error)
        case RequestDataTooBig():
            error = PayloadTooLarge()
        case LimitExceeded():
            error = OverLimit(error)
        case MemoryUser.DoesNotExist() | DatabaseError() if is_erased(error):
            error = Refusal(Erased())
        case Error() if timeouts.is_unavailable(error):
            error = Unavailable(describe_database_error(error))
    # Imported here to avoid a cycle: through the settings, `rest_framework.views` imports modules
    # that import this one.
    from rest_framework.views import exception_handler

    response = exception_handler(error, dict(context))
    if response is None:
        return None
    document = problem(response.status_code, _detail(error, context), _kind_of(error))
    response.data = document
    if isinstance(error, exceptions.ValidationError):
        response.data["errors"] = error.detail
    if isinstance(error, NamesNothing | Incompatible | Refusal) and error.errors:
        response.data["errors"] = error.errors
    if isinstance(error, OverLimit):
        response.data["limit"] = error.limit
    response.content_type = CONTENT_TYPE
    return response


def describe_database_error(error: Error) -> str:
    """Log a database error; return a message that omits its text, which may contain data."""
    logger.warning(
        "database_unavailable",
        error=type(error.__cause__ or error).__name__,
        sqlstate=getattr(error.__cause__, "sqlstate", None),
    )
    if timeouts.took_too_long(error):
        seconds = settings.UAC_WEB_STATEMENT_SECONDS
        return (
            f"The database took more than {seconds:g} s for this request, and nothing was changed."
            " Narrow the filters, request smaller pages, or try again."
        )
    if timeouts.was_in_the_way(error):
        return "Another request is writing the same data, and nothing was changed. Try again."
    return (
        "The database is not responding. Try again; a write with an Idempotency-Key can be"
        " repeated safely."
    )


def _detail(error: Exception, context: Mapping[str, Any]) -> str:
    """Return the `detail` of the problem: what is wrong and how to fix it."""
    match error:
        case exceptions.ValidationError():
            return "Request validation failed."
        case exceptions.NotAuthenticated():
            return "The request has no API key; send 'Authorization: Bearer uac_…'."
        case exceptions.MethodNotAllowed():
            allowed = ", ".join(context["view"].allowed_methods)
            return f"This endpoint does not allow {context['request'].method}; it allows {allowed}."
        case exceptions.NotAcceptable():
            return "The response is application/json, which the Accept header does not allow."
        case exceptions.UnsupportedMediaType():
            types = [parser.media_type for parser in context["view"].get_parsers()]
            if types == ["application/json"]:
                return "Send the body as JSON, with 'Content-Type: application/json'."
            return f"Send the body with one of these Content-Types: {', '.join(types)}."
        case exceptions.APIException():
            return str(error.detail)
        case PermissionDenied():
            return str(error) or "This is not allowed."
    return str(error) or "Endpoint not found."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Respond to a request that Django rejects before it reaches a view (400)."""
    if _is_page(request):
        return defaults.bad_request(request, exception)
    return answer(400, "The request's URL or headers are invalid.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Respond to a request for an unknown URL (404)."""
    if _is_page(request):
        return defaults.page_not_found(request, exception)
    return answer(404, "Endpoint not found; the API is below /v1/.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Respond to a server error: 503 if the database is unavailable, otherwise 500."""
    error = sys.exc_info()[1]
    if isinstance(error, Error) and timeouts.is_unavailable(error):
        detail = describe_database_error(error)
        response = (
            HttpResponse(detail, "text/plain", 503) if _is_page(request) else answer(503, detail)
        )
        response["Retry-After"] = str(Unavailable.wait)
        return response
    if _is_page(request):
        return defaults.server_error(request)
    return answer(
        500,
        "The server failed to process this request. A request with an Idempotency-Key can be"
        " repeated safely.",
    )


def _is_page(request: HttpRequest) -> bool:
    """Return whether a browser shows the response: the admin's pages, and what a person opens."""
    wants_page = "text/html" in request.headers.get("Accept", "")
    return wants_page or request.path_info.startswith("/admin/")
