"""Make each workspace's requests wait for its share of the web process's CPU time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rest_framework.throttling import BaseThrottle

from memory.kernel.admission import refusals
from memory.kernel.admission.processor_shares import ProcessorShares
from memory.kernel.http.authentication import Principal
from memory.kernel.http.rates import TooMuch
from memory.kernel.settings import quotas, table

if TYPE_CHECKING:
    # Import for type checking only: at run time, `rest_framework.views` imports this module through
    # the settings.
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView

_shares = ProcessorShares()


class ProcessorShare(BaseThrottle):
    """Holds back requests from a workspace that has used up its share."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Wait if necessary and return True, or raise TooMuch if the wait would be too long."""
        if not isinstance(request.user, Principal):
            return True
        workspace = request.user.workspace
        share = float(workspace.effective(table.QUOTAS)[quotas.PROCESSOR]) / 100
        if wait := math.ceil(_shares.admit(workspace.pk, share)):
            refusals.count(workspace, quotas.PROCESSOR)
            raise TooMuch(
                "This workspace's requests have used more than its share of processor time while"
                f" other workspaces need it ({quotas.PROCESSOR}). Try again in {wait} s.",
                quotas.PROCESSOR,
                wait,
            )
        vars(request._request)["processor_share"] = workspace.pk, share
        return True


def charge_processor_time(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware that charges each request's processor time to its workspace's share."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        began = time.thread_time()
        response = get_response(request)
        charged: tuple[int, float] | None = getattr(request, "processor_share", None)
        if charged is not None:
            workspace_pk, share = charged
            _shares.charge(workspace_pk, time.thread_time() - began, share)
        return response

    return respond
