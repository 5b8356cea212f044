"""The rates of a workspace, applied to requests.

Responses report them in `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rest_framework import exceptions, status
from rest_framework.throttling import BaseThrottle

from memory.admission import rates, refusals
from memory.api.authentication import Principal, principal_of, scope_of
from memory.models.workspaces import Scope
from memory.workspace_settings import quotas

if TYPE_CHECKING:
    # `rest_framework.views` imports this module through the settings.
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from memory.admission.rates import RateStatus


class TooMuch(exceptions.APIException):
    """A limit of the workspace is exceeded: for a moment (429), or permanently (403)."""

    def __init__(self, detail: str, limit: str, wait: float | None) -> None:
        super().__init__(detail)
        self.limit = limit
        self.status_code = status.HTTP_403_FORBIDDEN
        if wait is not None:
            self.status_code = status.HTTP_429_TOO_MANY_REQUESTS
            # The framework turns it into `Retry-After`.
            self.wait = math.ceil(wait)


class Rates(BaseThrottle):
    """Counts every request made with a key against the matching rate of its workspace."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return True, or raise TooMuch."""
        if isinstance(request.user, Principal):
            take(request, rate_of(request, view))
        return True


def rate_of(request: Request, view: APIView) -> str:
    """Return the name of the rate for a request. A view lists its costly methods in `costly`."""
    if request.method in getattr(view, "costly", ()):
        return quotas.COSTLY
    return quotas.READS if scope_of(request, view) == Scope.READ else quotas.WRITES


def take(request: Request, name: str, cost: int = 1) -> None:
    """Take `cost` from a rate of the caller's workspace, or raise TooMuch and take nothing."""
    workspace = principal_of(request).workspace
    standing = rates.take(workspace, name, cost)
    told: list[RateStatus] = vars(request._request).setdefault("rates", [])
    told.append(standing)
    if standing.wait is None:
        return
    refusals.count(workspace, name)
    raise TooMuch(
        f"A rate limit of this workspace is exceeded ({name}: {standing.rate}): try again in"
        f" {math.ceil(standing.wait)} s.",
        name,
        standing.wait,
    )


def tell_rates(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return a middleware that adds the state of the rates used by a request to its response."""

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
