"""The request header `Idempotency-Key`: a repeated write gets a response but isn't repeated.

This follows draft-ietf-httpapi-idempotency-key-header. Only references to the objects created by
the write are stored, and every response is built from those objects, so the response to a repeated
request shows the current state of the same entries, run or user.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request

from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Conflict, ProblemSerializer, Unprocessable
from memory.kernel.http.problems import CONTENT_TYPE
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import idempotency

HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
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
Row = TypeVar("Row", bound=Model)
View = TypeVar("View", bound=Callable[..., Any])


def schema(
    responses: Mapping[Any, Any], parameters: Sequence[OpenApiParameter] = (), **more: Any
) -> Callable[[View], View]:
    """Describe a write that accepts an `Idempotency-Key`; `more` is passed to `extend_schema`.

    A view's own 409 or 422 replaces the general one.
    """
    return extend_schema(
        responses={**RESPONSES, **responses}, parameters=[*parameters, HEADER], **more
    )


class InProgress(Conflict):
    """The first request with the same key is still being processed (409)."""

    problem = "in-progress"
    # In seconds; the framework sends it as `Retry-After`.
    wait = RETRY_SECONDS


class KeyReused(Unprocessable):
    """The key was used for a different request (422)."""

    problem = "key-reused"


@dataclass(frozen=True)
class Written(Generic[Result]):
    """The result of a write, and the headers of its response."""

    result: Result
    headers: Mapping[str, str]


def once(
    request: Request,
    do: Callable[[], Result],
    *,
    user_of: Callable[[Result], MemoryUser | None] = lambda result: None,
    refer: Callable[[Result], Any] = lambda result: {},
    recall: Callable[[IdempotencyKey], Result],
    nameless: bool = False,
) -> Written[Result]:
    """Carry out a request's write, or return the result of an earlier request with this key.

    `refer` turns the result into a JSON value to store, and `recall` restores it from the stored
    row. Checks that depend on the current state belong in `do`: a repeated request must not fail
    because of the effects of the first one. `nameless` means that the write erases the user in
    question.

    Raises ValidationError for a malformed key, InProgress (409) while the first request is still
    being processed, and KeyReused (422) if the key was used for a different request.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return Written(do(), {})
    if not _KEY.fullmatch(key):
        raise ValidationError(
            {"Idempotency-Key": ["Use 1 to 255 printable ASCII characters, such as a UUID."]}
        )

    def known(row: IdempotencyKey) -> Result:
        try:
            return recall(row)
        except MemoryUser.DoesNotExist:
            raise  # the API has a more specific error for this case
        except ObjectDoesNotExist:
            raise NotFound("The result of this request is no longer available.") from None

    write = idempotency.Write(do, user_of, refer, known, nameless)
    try:
        result, replayed = idempotency.once(
            principal_of(request).workspace, key, _fingerprint(request), write
        )
    except idempotency.KeyInProgress as error:
        raise InProgress(str(error)) from None
    except idempotency.KeyReused as error:
        raise KeyReused(str(error)) from None
    return Written(result, {"Idempotent-Replayed": "true"} if replayed else {})


def once_for_row(
    request: Request,
    do: Callable[[], Row],
    model: type[Row],
    user_of: Callable[[Row], MemoryUser | None] = lambda row: None,
) -> Written[Row]:
    """Like `once`, for a write whose result is a row of `model`."""
    return once(
        request,
        do,
        user_of=user_of,
        refer=lambda row: str(row.pk),
        recall=lambda known: model._default_manager.get(pk=known.reference),
    )


def _fingerprint(request: Request) -> str:
    """Return a hash that identifies a request, ignoring its `wait` parameter."""
    asked = [request.method, request.path, request.data]
    parameters = {name: text for name, text in request.query_params.items() if name != "wait"}
    # A key limited to certain users sees only their data. If that set of users changes, an
    # identical request is treated as a different request.
    reach = principal_of(request).key.user_pks
    told = [parameters] if reach is None else [parameters, sorted(reach)]
    return sha256(canonical_json([*asked, *told] if parameters or reach is not None else asked))
