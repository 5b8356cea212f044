"""Refuse writes while this process's clock is wrong, as it would write wrong times."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from rest_framework.permissions import SAFE_METHODS

from memory.kernel.database import clock
from memory.kernel.http.problems import answer

DETAIL = (
    "The clock of this server process differs from the database's, so it accepts no writes. Try"
    " again; the operator has to synchronize both clocks (NTP)."
)
RETRY_SECONDS = 10


def refuse_with_wrong_clock(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return middleware that answers writes with a 503 while this process's clock is wrong."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        if request.method in SAFE_METHODS or clock.is_right():
            return get_response(request)
        response = answer(503, DETAIL)
        response["Retry-After"] = str(RETRY_SECONDS)
        return response

    return respond
