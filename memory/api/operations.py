"""What takes its time: `202` with the address at which it is told how far it has come.

What is found there has `finished_at`, which is null until it has ended, one way or another.
"""

from collections.abc import Mapping
from typing import Any

from rest_framework import status
from rest_framework.response import Response

# When to look again, at the earliest.
RETRY_SECONDS = 1


def accepted(answer: Any, location: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a 202 that says where to look, and when."""
    told = {"Location": location, "Retry-After": str(RETRY_SECONDS), **(headers or {})}
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers=told)
