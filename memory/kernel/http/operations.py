"""Responses with the URL of what a request created, or of the progress of a long operation.

The `finished_at` of a long operation is null until it has ended, successfully or not.
"""

from collections.abc import Mapping
from typing import Any

from rest_framework import status
from rest_framework.response import Response

# Minimum number of seconds before the client polls again.
RETRY_SECONDS = 1


def accepted(answer: Any, location: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a 202 with the progress URL and the number of seconds to wait between polls."""
    told = {"Location": location, "Retry-After": str(RETRY_SECONDS), **(headers or {})}
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers=told)


def created(answer: Any, location: str, headers: Mapping[str, str]) -> Response:
    """Return a 201 with the URL of the created resource."""
    told = {**headers, "Location": location}
    return Response(answer, status=status.HTTP_201_CREATED, headers=told)
