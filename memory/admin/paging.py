"""Pages of lists that may be very long: nobody counts a million rows to show fifty."""

from typing import Any

from django.core.paginator import Paginator
from django.utils.functional import cached_property

# So far a list is counted, and can be turned over; what is farther back is found by filters.
MOST = 10_000


class BoundedPaginator(Paginator[Any]):
    """Django's pages of the first `MOST` rows, which says so if there are more."""

    @cached_property
    def _found(self) -> int:
        # One more than are shown tells that there are more.
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[: MOST + 1].count())

    @cached_property
    def count(self) -> int:
        """How many rows there are to be turned over."""
        return min(self._found, MOST)

    @property
    def is_cut(self) -> bool:
        """Whether there are more than that."""
        return self._found > MOST
