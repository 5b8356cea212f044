"""Paging for lists that don't come from database queries, using the same cursors as other lists."""

import base64
import bisect
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from memory.kernel.http.pagination import Pagination, bad_cursor

Row = TypeVar("Row")

PAGE = [
    OpenApiParameter(
        "cursor",
        {"type": "string", "format": "key-cursor"},
        description="The cursor from the `next` or `previous` link of another page.",
    ),
    OpenApiParameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": Pagination.max_page_size},
        description="The number of results per page.",
    ),
]


class PageSerializer(serializers.Serializer[Any]):
    """The fields that every page of a list has; subclasses define `results`."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)


def page_of(
    request: Request, rows: Sequence[Row], key: Callable[[Row], Sequence[str | float]]
) -> dict[str, Any]:
    """Return a page of the rows, which are all in memory, with links to the adjacent pages.

    Rows are sorted by their unique keys; a cursor is the key of the last row before the page it
    points to, so adding or removing rows doesn't shift others to a different page.
    """
    pagination = Pagination()
    size = pagination.get_page_size(request)
    by_key = {tuple(key(row)): row for row in rows}
    keys = sorted(by_key)
    start = 0
    if text := request.query_params.get(pagination.cursor_query_param):
        start = _find_offset(keys, text)

    def address(offset: int) -> str:
        query = request.query_params.copy()
        query.pop(pagination.cursor_query_param, None)
        if offset > 0:
            cursor = json.dumps(keys[offset - 1], separators=(",", ":")).encode()
            query[pagination.cursor_query_param] = base64.urlsafe_b64encode(cursor).decode()
        path = f"{request.path}?{query.urlencode()}" if query else request.path
        return str(request.build_absolute_uri(path))

    return {
        "next": address(start + size) if start + size < len(keys) else None,
        "previous": address(max(0, start - size)) if start > 0 else None,
        "results": [by_key[one] for one in keys[start : start + size]],
    }


def _find_offset(keys: Sequence[tuple[str | float, ...]], text: str) -> int:
    """Return the position after the cursor's key, even if the row with that key is gone."""
    try:
        named = tuple(json.loads(base64.urlsafe_b64decode(text.encode())))
        return bisect.bisect_right(keys, named)
    except (ValueError, TypeError, RecursionError):  # deeply nested brackets raise RecursionError
        raise bad_cursor() from None
