"""Bounded pagination: counting a million rows to show fifty would take too long."""

from typing import Any

from django.core.paginator import Paginator
from django.utils.functional import cached_property

# The number of rows that are counted and can be paged through; filters find later ones.
MAX_ROWS = 10_000


class BoundedPaginator(Paginator[Any]):
    """Django's paginator for the first `MAX_ROWS` rows, which tells whether there are more."""

    @cached_property
    def _found(self) -> int:
        # One row more than are shown tells that there are more.
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: MAX_ROWS + 1].count())

    @cached_property
    def count(self) -> int:
        """The number of rows that can be paged through."""
        return min(self._found, MAX_ROWS)

    @property
    def is_cut(self) -> bool:
        """Tell whether there are more rows."""
        return self._found > MAX_ROWS
