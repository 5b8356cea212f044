"""Read the database's content, to tell whether anything was written."""

from collections.abc import Iterable

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
