"""One form for every error: problem details (RFC 9457) with the fields that are wrong."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions, serializers, status
from rest_framework.response import Response
from rest_framework.views import exception_handler as rest_exception_handler

CONTENT_TYPE = "application/problem+json"


class Conflict(exceptions.APIException):
    """The request contradicts what is there (409)."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Unprocessable(exceptions.APIException):
    """The request is well formed and cannot be done (422)."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


class Gone(exceptions.APIException):
    """What is asked for was there, and must not be told any more (410)."""

    status_code = status.HTTP_410_GONE
    default_code = "gone"


class PayloadTooLarge(exceptions.APIException):
    """The body is larger than the server takes (413)."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self) -> None:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        super().__init__(f"The body may have {limit} bytes at most; send it in parts.")


class ProblemSerializer(serializers.Serializer[Any]):
    """Problem details (RFC 9457): what is wrong, and how to mend it."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors = serializers.JSONField(  # type: ignore[assignment]
        required=False, help_text="Field → what is wrong with it."
    )


def problem(status_code: int, detail: str) -> dict[str, Any]:
    """Return the problem details of an error."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status_code).phrase,
        "status": status_code,
        "detail": detail,
    }


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn an exception of a view into problem details; None leaves it to Django (500)."""
    if isinstance(error, RequestDataTooBig):
        error = PayloadTooLarge()
    response = rest_exception_handler(error, dict(context))
    if response is None:
        return None
    response.data = problem(response.status_code, _detail(error, context))
    if isinstance(error, exceptions.ValidationError):
        response.data["errors"] = error.detail
    response.content_type = CONTENT_TYPE
    return response


def _detail(error: Exception, context: Mapping[str, Any]) -> str:
    """Say what is wrong and how to mend it."""
    match error:
        case exceptions.ValidationError():
            return "The request has fields that are not as they should be."
        case exceptions.NotAuthenticated():
            return "The request has no API key; send 'Authorization: Bearer uac_…'."
        case exceptions.MethodNotAllowed():
            allowed = ", ".join(context["view"].allowed_methods)
            return f"This address does not take {context['request'].method}; it takes {allowed}."
        case exceptions.NotAcceptable():
            return "The answer is application/json, which the Accept header does not allow."
        case exceptions.UnsupportedMediaType():
            return "Send the body as JSON, with 'Content-Type: application/json'."
        case exceptions.APIException():
            return str(error.detail)
        case PermissionDenied():
            return str(error) or "This is not allowed."
    return str(error) or "There is nothing at this address."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django refuses before a view sees it (400)."""
    if not _is_api(request):
        return defaults.bad_request(request, exception)
    return _answer(400, "The server cannot make sense of this request's address or headers.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a fault of ours (500), of which the server's log has the details."""
    if not _is_api(request):
        return defaults.server_error(request)
    return _answer(
        500, "The server failed on this request. With an Idempotency-Key it can be repeated safely."
    )


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/v1/")


def _answer(status_code: int, detail: str) -> HttpResponse:
    return JsonResponse(problem(status_code, detail), status=status_code, content_type=CONTENT_TYPE)
