"""Pagination with an opaque cursor, which stays stable while rows are added."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError as ModelValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination

if TYPE_CHECKING:
    # Import for type checking only: at run time, `rest_framework.views` imports this module through
    # the settings.
    from django.db.models import QuerySet
    from rest_framework.pagination import Cursor
    from rest_framework.request import Request
    from rest_framework.views import APIView


# Maximum size of a page's content; several copies are held in memory at once.
PAGE_BYTES = 8 * 1024 * 1024
_DIGITS = re.compile(r"[0-9]{1,9}")


class Pagination(CursorPagination):
    """Pages of 50 rows, or of up to 500 with `?page_size=`.

    A view's `ordering` must end in a unique field.
    """

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    # Any number of rows may share a timestamp; the framework would stop at an offset of 1,000.
    offset_cutoff = 2**31

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any] | None:
        """Return a page; raises ValidationError for an invalid cursor or size."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, ValueError, TypeError, ModelValidationError, DataError):
            raise bad_cursor() from None

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the query parameters, with their limits."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        limits: dict[str, dict[str, Any]] = {
            self.cursor_query_param: {"format": "cursor"},
            self.page_size_query_param: {"minimum": 1, "maximum": self.max_page_size},
        }
        return [{**one, "schema": {**one["schema"], **limits[one["name"]]}} for one in parameters]

    def get_page_size(self, request: Request) -> int:
        """Parse `?page_size=`; raises ValidationError unless it is between 1 and the maximum."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        size = int(text) if _DIGITS.fullmatch(text) else 0
        if not 1 <= size <= self.max_page_size:
            raise ValidationError(
                {self.page_size_query_param: [f"Give a number from 1 to {self.max_page_size}."]}
            )
        return size

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Parse `?cursor=`; reject an empty cursor, which the framework would treat as missing."""
        cursor: Cursor | None = super().decode_cursor(request)
        if cursor is not None and not any(cursor):
            raise bad_cursor()
        return cursor

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a page."""
        link = {"type": "string", "format": "uri", "nullable": True}
        properties = {"next": link, "previous": dict(link), "results": schema}
        return {"type": "object", "required": sorted(properties), "properties": properties}

    def get_ordering(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> tuple[str, ...]:
        """Return the ordering that the view declares."""
        return tuple(view.ordering)  # type: ignore[attr-defined]


class BoundedPagination(Pagination):
    """Pages whose rows do not exceed PAGE_BYTES in total, except for a page with a single row.

    The view has `row_bytes`, an expression for the size of a row, and `all_bytes`, an upper bound
    on the size of all its rows.
    """

    _most = Pagination.max_page_size

    def get_page_size(self, request: Request) -> int:
        """Return the requested number of rows or, if fewer fit into a page, that number."""
        return min(super().get_page_size(request), self._most)

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any] | None:
        """Return a page; if its rows may be too large, read their sizes first, then what fits."""
        if view.all_bytes > PAGE_BYTES:  # type: ignore[union-attr]
            narrow = queryset.annotate(row_bytes=view.row_bytes).only(*view.ordering)  # type: ignore[union-attr]
            rows = super().paginate_queryset(narrow, request, view) or []
            is_backwards = self.cursor is not None and self.cursor.reverse
            sizes = [row.row_bytes for row in (reversed(rows) if is_backwards else rows)]
            so_far = itertools.accumulate(sizes)
            self._most = max(1, sum(1 for _ in itertools.takewhile(PAGE_BYTES.__ge__, so_far)))
        return super().paginate_queryset(queryset, request, view)


def bad_cursor() -> ValidationError:
    """Return the error for an invalid cursor."""
    return ValidationError(
        {"cursor": ["Invalid cursor for this list. Follow a page's `next` or `previous` link."]}
    )
