"""The request header `Idempotency-Key`: a repeated write gets a response but isn't repeated.

This follows draft-ietf-httpapi-idempotency-key-header. Only references to the objects created by
the write are stored, and every response is built from those objects, so the response to a repeated
request shows the current state of the same entries, run or user.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Conflict, ProblemSerializer, Unprocessable
from memory.kernel.http.problems import CONTENT_TYPE
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import idempotency

HEADER = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
    OpenApiParameter.HEADER,
    description="Identifies this write, so that the request can be repeated if its response is"
    " lost: a repeated request is not carried out again, and its response has the header"
    " `Idempotent-Replayed: true`. 1 to 255 printable ASCII characters, remembered for"
    f" {idempotency.KEPT.days}"
    " days.",
)
RESPONSES: Mapping[Any, OpenApiResponse] = {
    (409, CONTENT_TYPE): OpenApiResponse(
        ProblemSerializer,
        "The request conflicts with the current state, or the first request with this"
        " `Idempotency-Key` is still being processed (then with `Retry-After`).",
    ),
    (422, CONTENT_TYPE): OpenApiResponse(
        ProblemSerializer, "The `Idempotency-Key` was used for a different request."
    ),
}

_KEY = re.compile(r"(?=.*[!-~])[ -~]{1,255}")
RETRY_SECONDS = 1

Result = TypeVar("Result")


class InProgress(Conflict):
    """The first request with the same key is still being processed (409)."""

    problem = "in-progress"
    # In seconds; the framework sends it as `Retry-After`.
    wait = RETRY_SECONDS


class KeyReused(Unprocessable):
    """The key was used for a different request (422)."""

    problem = "key-reused"


class IdempotentView(APIView):
    """A view whose writes may be repeated with the same `Idempotency-Key`."""

    is_replayed = False

    def once(
        self,
        write: Callable[[], Result],
        user: MemoryUser | None = None,
        *,
        nameless: bool = False,
        has_failed: Callable[[Result], bool] = lambda _: False,
    ) -> Result:
        """Carry out a request's write, or return the result of an earlier request with this key.

        The result is a row, which is read again for a repeated request, a row with a JSON object,
        or JSON; `user` is the user it is about, by default the row's. Checks that depend on the
        current state belong in `write`: a repeated request must not fail because of the effects of
        the first one. `nameless` means that the write erases the user in question. If the result of
        the earlier request `has_failed`, the write is carried out again.

        Raises ValidationError for a malformed key, InProgress (409) while the first request is
        still being processed, and KeyReused (422) if the key was used for a different request.
        """
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return write()
        if not _KEY.fullmatch(key):
            raise ValidationError(
                {"Idempotency-Key": ["Use 1 to 255 printable ASCII characters, such as a UUID."]}
            )
        workspace, fingerprint = principal_of(self.request).workspace, _fingerprint(self.request)
        try:
            result, self.is_replayed = idempotency.once(
                workspace, key, fingerprint, write, user, nameless=nameless, has_failed=has_failed
            )
        except idempotency.KeyInProgress as error:
            raise InProgress(str(error)) from None
        except idempotency.KeyReused as error:
            raise KeyReused(str(error)) from None
        except idempotency.ResultGone as error:
            raise NotFound(str(error)) from None
        return result

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Mark the response to a repeated request."""
        if self.is_replayed:
            response["Idempotent-Replayed"] = "true"
        return super().finalize_response(request, response, *args, **kwargs)


def _fingerprint(request: Request) -> str:
    """Return a hash that identifies a request, ignoring its `wait` parameter."""
    parts = [request.method, request.path, request.data]
    parameters = {name: text for name, text in request.query_params.items() if name != "wait"}
    # A key limited to certain users sees only their data. If that set of users changes, an
    # identical request is treated as a different request.
    reach = principal_of(request).key.user_pks
    reach_parts = [parameters] if reach is None else [parameters, sorted(reach)]
    return sha256(
        canonical_json([*parts, *reach_parts] if parameters or reach is not None else parts)
    )
