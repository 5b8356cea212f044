"""Read what the database holds, and how it answers a query."""

import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.db import connection
from django.db.models import Model


def read_rows(models: Iterable[type[Model]]) -> dict[str, list[str]]:
    """Return the rows of each model as PostgreSQL prints them, with every column, by primary key.

    One query reads them all: tests call this thousands of times.
    """
    models = list(models)
    quote = connection.ops.quote_name
    arrays = [
        f"ARRAY(SELECT t::text FROM {quote(model._meta.db_table)} t"
        f" ORDER BY t.{quote(str(model._meta.pk.column))})"
        for model in models
    ]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(arrays)}")
        return dict(zip((model.__name__ for model in models), cursor.fetchone(), strict=True))


def as_text(value: object) -> str:
    """Return a column's value as text to search in; compressed bytes also as they were before."""
    if not isinstance(value, memoryview | bytes):
        return str(value)
    raw = bytes(value)
    with suppress(zlib.error):
        raw += zlib.decompress(raw)
    return raw.decode("latin-1")


def explain(query: str) -> list[dict[str, Any]]:
    """Execute a query; return the steps of its plan, with their figures."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
        steps = [cursor.fetchone()[0][0]["Plan"]]
    for step in steps:
        steps += step.get("Plans", ())
    return steps
