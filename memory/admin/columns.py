"""Columns that show a single value, for the class bodies of screens and inlines."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models.expressions import Combinable

from memory.admin.display import NOTHING, badge, inline, shortened
from memory.admin.links import link
from memory.versions.models.checkpoints import Checkpoint

# A method of a screen: the screen and the row as arguments, the markup as the result.
Column: TypeAlias = Callable[[Any, Any], str]


def row_column(
    show: Callable[[Any], str], description: str, ordering: str | Combinable | None = None
) -> Column:
    """Return a column that shows the row."""

    @admin.display(description=description, ordering=ordering)
    def shown(screen: Any, row: Any) -> str:
        return show(row)

    return shown


def column(
    path: str,
    show: Callable[[Any], str],
    description: str,
    ordering: str | Combinable | None = None,
) -> Column:
    """Return a column that shows one value of the row, such as `user.workspace`."""
    value_of = attrgetter(path)
    return row_column(lambda row: show(value_of(row)), description, ordering)


def badge_column(field: str, description: str, ordering: str | Combinable | None = None) -> Column:
    """Return a column with the label of a field with choices, in the value's colour."""
    return row_column(
        lambda row: badge(getattr(row, field), getattr(row, f"get_{field}_display")()),
        description,
        ordering,
    )


def text(value: str) -> str:
    """Show a value on one line."""
    return inline(value) if value else NOTHING


def beginning(value: str) -> str:
    """Show the beginning of a text on one line."""
    return inline(shortened(value)) if value else NOTHING


def version_link(checkpoint: Checkpoint | None) -> str:
    """Link to a version by its number."""
    return link(checkpoint, f"v{checkpoint.version}" if checkpoint else None)
