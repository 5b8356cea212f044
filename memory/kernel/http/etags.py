"""ETags: unchanged content is not resent (304), and changed content is not overwritten (412).

An ETag is a hash of the whole response.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import Model
from django.utils.http import parse_etags, quote_etag
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from memory.kernel.http.errors import Changed, ProblemSerializer
from memory.kernel.http.problems import CONTENT_TYPE

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag from the response to a GET of this URL. If a GET would return different"
    " content now, the request is rejected (412). `*` matches any content.",
)
CHANGED: Mapping[Any, OpenApiResponse] = {
    (412, CONTENT_TYPE): OpenApiResponse(
        ProblemSerializer, "The content no longer matches `If-Match`."
    )
}


@contextmanager
def unchanged(request: Request, row: Model, representation: Callable[[], Any]) -> Iterator[None]:
    """If the request has `If-Match`, lock the row during the block and check the header.

    `representation` returns the content that a GET of the URL would return right now. Raises
    Changed if the header does not match that content.
    """
    if "If-Match" not in request.headers:
        yield
        return
    with transaction.atomic():
        type(row)._default_manager.select_for_update(no_key=True).filter(pk=row.pk).first()
        require_match(request, representation())
        yield


def require_match(request: Request, representation: Any) -> bool:
    """Raise Changed if `If-Match` does not match this representation (None if nothing exists).

    Returns whether the header contains the ETag of the existing content; False if the header is
    missing or `*`.
    """
    wanted = request.headers.get("If-Match")
    if wanted is None:
        return False
    anything = wanted.strip() == "*"
    if representation is None or not (anything or etag_of(representation) in parse_etags(wanted)):
        raise Changed
    return not anything


def etag_of(representation: Any) -> str:
    """Return the ETag for a response with this content."""
    body = JSONRenderer().render(representation)
    return quote_etag(hashlib.md5(body, usedforsecurity=False).hexdigest())
