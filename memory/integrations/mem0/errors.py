"""Errors in the form that mem0's client expects: JSON with the whole message in `detail`."""

from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import exceptions, status
from rest_framework.response import Response

from memory.integrations.mem0.memories import TooLarge, UnknownMemory
from memory.kernel.http.errors import exception_handler as problem_handler


class CannotBeMapped(exceptions.APIException):
    """An argument that would change a request's meaning and has no equivalent here.

    The status is 400, which mem0's clients raise as a ValidationError.
    """

    status_code = status.HTTP_400_BAD_REQUEST


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Respond like the rest of the API, but as plain JSON with invalid fields named in `detail`."""
    if isinstance(error, UnknownMemory):
        error = exceptions.NotFound(str(error))
    if isinstance(error, TooLarge):
        error = exceptions.ValidationError(str(error))
    response = problem_handler(error, context)
    if response is None:
        return None
    response.content_type = "application/json"
    if isinstance(error, exceptions.ValidationError):
        response.data["detail"] = " ".join(_sentences(error.detail))
    elif isinstance(error, exceptions.NotAuthenticated):
        response.data["detail"] = "The request has no API key; send 'Authorization: Token uac_…'."
    return response


def _sentences(detail: Any, path: str = "") -> Iterator[str]:
    """Yield each message, prefixed with its field's name."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            named = "" if name == "non_field_errors" else str(name)
            yield from _sentences(inner, ".".join(filter(None, [path, named])))
    elif isinstance(detail, list):
        for number, inner in enumerate(detail):
            nested = isinstance(inner, dict | list)
            yield from _sentences(inner, f"{path}[{number}]" if nested else path)
    else:
        text = str(detail)
        yield text if not path or text.startswith(path) else f"{path}: {text}"
