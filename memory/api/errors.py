"""One form for every error: problem details (RFC 9457) with the fields that are wrong."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler as rest_exception_handler


class Conflict(exceptions.APIException):
    """The request contradicts what is there (409)."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Unprocessable(exceptions.APIException):
    """The request is well formed and cannot be done (422)."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


class PayloadTooLarge(exceptions.APIException):
    """The body is larger than the server takes (413)."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self) -> None:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        super().__init__(f"The body may have {limit} bytes at most; send it in parts.")


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn an exception of a view into problem details; None leaves it to Django (500)."""
    if isinstance(error, RequestDataTooBig):
        error = PayloadTooLarge()
    response = rest_exception_handler(error, dict(context))
    if response is None:
        return None
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(response.status_code).phrase,
        "status": response.status_code,
    }
    if isinstance(error, exceptions.ValidationError):
        problem["detail"] = "The request has fields that are not as they should be."
        problem["errors"] = error.detail
    elif isinstance(error, exceptions.APIException):
        problem["detail"] = str(error.detail)
    elif isinstance(error, Http404):
        problem["detail"] = str(error) or "There is nothing at this address."
    elif isinstance(error, PermissionDenied):
        problem["detail"] = str(error) or "This is not allowed."
    response.data = problem
    response.content_type = "application/problem+json"
    return response
