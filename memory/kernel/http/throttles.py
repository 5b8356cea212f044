"""Apply a workspace's rates and its share of the processor to its requests.

Responses report the rates in the headers `RateLimit` and `RateLimit-Policy`
(draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rest_framework.throttling import BaseThrottle

from memory.kernel.admission import rates, shares
from memory.kernel.admission.refusals import refuse
from memory.kernel.http.authentication import Principal, handler_name, principal_of, scope_of
from memory.kernel.models.workspaces import Scope

if TYPE_CHECKING:
    # Import for type checking only: at run time, `rest_framework.views` imports this module through
    # the settings.
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from memory.kernel.admission.rates import RateStatus


class WorkspaceLimits(BaseThrottle):
    """Holds back requests from a workspace that has used up its share, and counts the others."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Wait if necessary and return True.

        Raises LimitExceeded if the wait would be too long or the rate limit is exceeded.
        """
        if isinstance(request.user, Principal):
            workspace = request.user.workspace
            vars(request._request)["processor_share"] = workspace.pk, shares.admit(workspace)
            take(request, rate_of(request, view))
        return True


def rate_of(request: Request, view: APIView) -> str:
    """Return the name of a request's rate limit; views list expensive operations in `costly`."""
    if handler_name(request, view) in getattr(view, "costly", ()):
        return rates.COSTLY
    return rates.READS if scope_of(request, view) == Scope.READ else rates.WRITES


def take(request: Request, name: str, cost: int = 1) -> None:
    """Count `cost` against the caller's rate limit, or raise LimitExceeded and count nothing."""
    workspace = principal_of(request).workspace
    status = rates.take(workspace, name, cost)
    vars(request._request).setdefault("rates", []).append(status)
    if status.wait is not None:
        refuse(
            workspace,
            name,
            f"A rate limit of this workspace is exceeded ({name}: {status.rate}). Try again in"
            f" {math.ceil(status.wait)} s.",
            status.wait,
        )


def report_and_charge(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware that charges the processor time of requests, and reports their rates."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        began = time.thread_time()
        response = get_response(request)
        charged: tuple[int, float] | None = getattr(request, "processor_share", None)
        if charged is not None:
            workspace_pk, share = charged
            shares.charge(workspace_pk, time.thread_time() - began, share)
        statuses: list[RateStatus] = getattr(request, "rates", [])
        if statuses:
            response["RateLimit-Policy"] = ", ".join(
                f'"{status.name}";q={status.rate};w={rates.MINUTE:.0f}' for status in statuses
            )
            response["RateLimit"] = ", ".join(
                f'"{status.name}";r={status.left};t={math.ceil(status.full_in)}'
                for status in statuses
            )
        return response

    return respond
