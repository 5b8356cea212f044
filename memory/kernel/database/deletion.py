"""Deleting old rows in small batches, so that no statement takes long."""

from typing import Any

from django.db.models import QuerySet


def delete_oldest(rows: QuerySet[Any], column: str, limit: int) -> int:
    """Delete the first `limit` of these rows by the column; return how many rows were deleted."""
    oldest = list(rows.order_by(column).values_list("pk", flat=True)[:limit])
    if oldest:
        rows.model._default_manager.filter(pk__in=oldest).delete()
    return len(oldest)
