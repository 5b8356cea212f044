"""Make each workspace's requests wait for its share of the web process's CPU time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rest_framework.throttling import BaseThrottle

from memory.admission import refusals
from memory.admission.processor_shares import ProcessorShares
from memory.api.authentication import Principal
from memory.api.rates import TooMuch
from memory.workspace_settings import quotas, table

if TYPE_CHECKING:
    # Import for type checking only: at run time, `rest_framework.views` imports this module through
    # the settings.
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from memory.models import Workspace

_shares = ProcessorShares()


class ProcessorShare(BaseThrottle):
    """Holds back requests from a workspace that has used up its share."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Wait if necessary and return True, or raise TooMuch if the wait would be too long."""
        if not isinstance(request.user, Principal):
            return True
        workspace = request.user.workspace
        if wait := math.ceil(_shares.admit(workspace.pk, _share_of(workspace))):
            refusals.count(workspace, quotas.PROCESSOR)
            raise TooMuch(
                "This workspace's requests have used more than its share of processor time while"
                f" other workspaces need it ({quotas.PROCESSOR}). Try again in {wait} s.",
                quotas.PROCESSOR,
                wait,
            )
        vars(request._request)["charged_workspace"] = workspace
        return True


def charge_processor_time(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware that charges each request's processor time to its workspace's share."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        began = time.thread_time()
        response = get_response(request)
        workspace: Workspace | None = getattr(request, "charged_workspace", None)
        if workspace is not None:
            used = time.thread_time() - began
            _shares.charge(workspace.pk, used, _share_of(workspace))
        return response

    return respond


def _share_of(workspace: Workspace) -> float:
    return float(workspace.effective(table.QUOTAS)[quotas.PROCESSOR]) / 100
