"""The rows that a staff member may see."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.kernel.staff import access

Row = TypeVar("Row", bound=models.Model)
Value = TypeVar("Value")


def rows_for(request: HttpRequest, model: type[Row]) -> QuerySet[Row]:
    """Return the rows of a model that the staff member may see."""
    rows = access.seen_by(request.user, model._default_manager.all())
    return rows if may_see(request, model) else rows.none()


def may_see(request: HttpRequest, model: type[models.Model]) -> bool:
    """Return whether the staff member may see rows of this model."""
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def cached_on_row(compute: Callable[[Row], Value]) -> Callable[[Row], Value]:
    """Cache a function's result on the row, since several parts of a page need it."""
    name = f"_{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def cached(row: Row) -> Value:
        if name not in row.__dict__:
            row.__dict__[name] = compute(row)
        value: Value = row.__dict__[name]
        return value

    return cached
