"""Lists are read page by page with an opaque cursor: stable while rows are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination

if TYPE_CHECKING:
    # `rest_framework.views` imports this module, by name of the settings.
    from django.db.models import QuerySet
    from rest_framework.request import Request
    from rest_framework.views import APIView


class Pagination(CursorPagination):
    """Pages of 50, up to 500 with `?page_size=`. A view's `ordering` must end in a unique field."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    # Any number of rows may share a time; the framework would stop counting them at 1,000.
    offset_cutoff = 2**31

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any] | None:
        """Return a page; raises NotFound for a cursor that is none of ours."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, TypeError, ValidationError, DataError):
            raise NotFound(self.invalid_cursor_message) from None

    def get_ordering(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> tuple[str, ...]:
        """Return the order that the view declares."""
        return tuple(view.ordering)  # type: ignore[attr-defined]
