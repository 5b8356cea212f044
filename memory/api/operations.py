"""Long operations: `202` with the address at which the progress is shown.

The resource there has `finished_at`, which is null until the operation has ended, in whatever way.
"""

from collections.abc import Mapping
from typing import Any

from rest_framework import status
from rest_framework.response import Response

# The earliest time to look again, in seconds.
RETRY_SECONDS = 1


def accepted(answer: Any, location: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a 202 with the address and the time to look again."""
    told = {"Location": location, "Retry-After": str(RETRY_SECONDS), **(headers or {})}
    return Response(answer, status=status.HTTP_202_ACCEPTED, headers=told)
