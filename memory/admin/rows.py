"""The rows that a staff member may see, and their large columns."""

from typing import TypeVar

from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.staff import access

Row = TypeVar("Row", bound=models.Model)

# A checkpoint's large columns, each of which may hold megabytes.
HEAVY = ("tree", "outline", "edits", "verdict")


def rows_for(request: HttpRequest, model: type[Row]) -> QuerySet[Row]:
    """Return the rows of a model that the staff member may see."""
    rows = access.seen_by(request.user, model._default_manager.all())
    return rows if may_see(request, model) else rows.none()


def may_see(request: HttpRequest, model: type[models.Model]) -> bool:
    """Return whether the staff member may see rows of this model."""
    return request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def heavy(*paths: str) -> list[str]:
    """Return `defer` lookups for the large columns of the checkpoints at these paths."""
    return [f"{path}__{name}" for path in paths for name in HEAVY]
