"""Operations as the document describes them, and responses that point to what a request created.

The `finished_at` of a long operation is null until it has ended, successfully or not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.response import Response

from memory.kernel.http import idempotency

# Minimum number of seconds before the client polls again.
RETRY_SECONDS = 1

Handler = TypeVar("Handler", bound=Callable[..., Any])


def read(
    responses: Any, parameters: Sequence[OpenApiParameter] = (), **more: Any
) -> Callable[[Handler], Handler]:
    """Describe an operation; the query parameters described are the only ones that it accepts.

    `more` is passed to `extend_schema`.
    """

    def describe(handler: Handler) -> Handler:
        queries = [one.name for one in parameters if one.location == OpenApiParameter.QUERY]
        vars(handler)["query_parameters"] = queries
        return extend_schema(responses=responses, parameters=[*parameters], **more)(handler)

    return describe


def write(
    responses: Mapping[Any, Any], parameters: Sequence[OpenApiParameter] = (), **more: Any
) -> Callable[[Handler], Handler]:
    """Describe an operation that accepts an `Idempotency-Key`.

    An operation's own 409 or 422 replaces the general one.
    """
    return read({**idempotency.RESPONSES, **responses}, [*parameters, idempotency.HEADER], **more)


def accepted(answer: Any, location: str) -> Response:
    """Return a 202 with the progress URL and the number of seconds to wait between polls."""
    headers = {"Location": location, "Retry-After": str(RETRY_SECONDS)}
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers=headers)


def created(answer: Any, location: str) -> Response:
    """Return a 201 with the URL of the created resource."""
    return Response(answer, status=status.HTTP_201_CREATED, headers={"Location": location})
