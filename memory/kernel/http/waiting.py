"""Requests that wait for a worker: how long, and how many at a time.

A waiting request ties up a thread in the web process. The number of such requests is capped, so
that a backlog of work can't starve appends of threads, and a single workspace can't take every
slot; further requests immediately get a `202` with the URL of the result.
"""

import re
import time
from collections.abc import Callable

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from memory.kernel.admission import slots

# The schema of a query parameter `wait`.
SECONDS = {"type": "number", "format": "double", "minimum": 0}
WAIT = OpenApiParameter(
    "wait",
    SECONDS,
    description="Seconds to wait for the result before responding with 202.",
)

# Matches a number in JSON syntax.
_NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")


def seconds(request: Request, default: float) -> float:
    """Parse `?wait=`, up to the configured maximum; raises ValidationError if it is no number."""
    most = float(settings.UAC_MAX_WAIT_SECONDS)
    text = request.query_params.get("wait")
    if text is None:
        return min(default, most)
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if value < 0:
        raise ValidationError(
            {"wait": [f"Give a number of seconds from 0 on, not {text[:100]!r}."]}
        )
    return min(value, most)


def until(settled: Callable[[], bool], limit: float, *, workspace_pk: int) -> None:
    """Poll `settled` at growing intervals until it returns true, for up to `limit` seconds."""
    deadline = time.monotonic() + limit
    interval = 0.02
    with slots.WAITING.take(workspace_pk) as admitted:
        while admitted and (left := deadline - time.monotonic()) > 0 and not settled():
            time.sleep(min(interval, left))
            interval = min(interval * 1.5, 0.1)
