"""Bounded pagination: counting a million rows to show fifty would take too long."""

from typing import Any

from django.core.paginator import Paginator
from django.utils.functional import cached_property

# Maximum number of rows counted and paged through; filters give access to the rest.
MAX_ROWS = 10_000


class BoundedPaginator(Paginator[Any]):
    """Django's paginator, limited to the first `MAX_ROWS` rows; `is_cut` means there are more."""

    @cached_property
    def _bounded_count(self) -> int:
        # Counting one row beyond the maximum shows whether there are more.
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: MAX_ROWS + 1].count())

    @cached_property
    def count(self) -> int:
        return min(self._bounded_count, MAX_ROWS)

    @property
    def is_cut(self) -> bool:
        return self._bounded_count > MAX_ROWS
