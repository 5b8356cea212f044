"""Apply a workspace's rate limits to its requests.

Responses report the limits in the headers `RateLimit` and `RateLimit-Policy`
(draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rest_framework import exceptions, status
from rest_framework.throttling import BaseThrottle

from memory.kernel.admission import rates, refusals
from memory.kernel.http.authentication import Principal, handler_name, principal_of, scope_of
from memory.kernel.models.workspaces import Scope
from memory.kernel.settings import quotas

if TYPE_CHECKING:
    # Import for type checking only: at run time, `rest_framework.views` imports this module through
    # the settings.
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from memory.kernel.admission.rates import RateStatus


class TooMuch(exceptions.APIException):
    """A limit is exceeded: a rate or concurrency limit (429; waiting helps), or a quota (403)."""

    def __init__(self, detail: str, limit: str, wait: float | None) -> None:
        super().__init__(detail)
        self.limit = limit
        self.status_code = status.HTTP_403_FORBIDDEN
        if wait is not None:
            self.status_code = status.HTTP_429_TOO_MANY_REQUESTS
            # In seconds; the framework sends it as `Retry-After`.
            self.wait = math.ceil(wait)


class Rates(BaseThrottle):
    """Counts every request made with an API key against a rate limit of the key's workspace."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return True, or raise TooMuch if the rate limit is exceeded."""
        if isinstance(request.user, Principal):
            take(request, rate_of(request, view))
        return True


def rate_of(request: Request, view: APIView) -> str:
    """Return the name of a request's rate limit; views list expensive operations in `costly`."""
    if handler_name(request, view) in getattr(view, "costly", ()):
        return quotas.COSTLY
    return quotas.READS if scope_of(request, view) == Scope.READ else quotas.WRITES


def take(request: Request, name: str, cost: int = 1) -> None:
    """Count `cost` against the caller's rate limit `name`, or raise TooMuch and count nothing."""
    workspace = principal_of(request).workspace
    standing = rates.take(workspace, name, cost)
    told: list[RateStatus] = vars(request._request).setdefault("rates", [])
    told.append(standing)
    if standing.wait is None:
        return
    refusals.count(workspace, name)
    raise TooMuch(
        f"A rate limit of this workspace is exceeded ({name}: {standing.rate}). Try again in"
        f" {math.ceil(standing.wait)} s.",
        name,
        standing.wait,
    )


def tell_rates(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware that reports, in each response, the rate limits that its request used."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        standings: list[Any] = getattr(request, "rates", [])
        if standings:
            response["RateLimit-Policy"] = ", ".join(
                f'"{one.name}";q={one.rate};w={rates.MINUTE:.0f}' for one in standings
            )
            response["RateLimit"] = ", ".join(
                f'"{one.name}";r={one.left};t={math.ceil(one.full_in)}' for one in standings
            )
        return response

    return respond
