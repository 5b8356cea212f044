"""Large columns, which a model names in `LARGE`: rows are read without them unless needed."""

from collections.abc import Collection, Iterator
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def defer_large(rows: QuerySet[Row], *relations: str, keep: Collection[str] = ()) -> QuerySet[Row]:
    """Read the rows and these related rows, in one statement, without large columns.

    `keep` has the lookups of large columns to read.
    """
    columns = large_columns(rows.model, *relations)
    joined = rows.select_related(*relations) if relations else rows
    return joined.defer(*(name for name in columns if name not in keep))


def large_columns(model: type[Model], *relations: str) -> Iterator[str]:
    """Yield the lookups of the large columns of a model, and of models that it is related to."""
    yield from getattr(model, "LARGE", ())
    for path in relations:
        related, prefix = model, ""
        for name in path.split("__"):
            related = related._meta.get_field(name).related_model  # type: ignore[assignment]
            prefix += f"{name}__"
            yield from (f"{prefix}{column}" for column in getattr(related, "LARGE", ()))
