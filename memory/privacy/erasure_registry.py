"""What an erasure has to erase: the rows and columns that the models declare to be about a user.

See `memory.kernel.models.privacy`.
"""

from graphlib import TopologicalSorter
from typing import Any

from django.db import connections, models

from memory.kernel.models.privacy import erased_columns, models_about_users, owner_paths
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.privacy.models import UserErasure


def sort_models() -> list[type[models.Model]]:
    """Return the models about users, each before the models that its foreign keys refer to."""
    pointing = TopologicalSorter[type[models.Model]]()
    for model in models_about_users():
        pointing.add(model)
        for column in model._meta.concrete_fields if model is not MemoryUser else ():
            target: Any = column.related_model
            if target in models_about_users() and target is not model:
                pointing.add(target, model)
    return list(pointing.static_order())


def rows_of(model: type[models.Model], user: MemoryUser) -> models.QuerySet[Any]:
    """Select this user's rows of a model about users."""
    rows = model._base_manager
    first, *others = owner_paths(model)
    if not others:
        return rows.filter(**{first: user.pk})
    # Use a union, since no single index covers both paths.
    keys = [rows.filter(**{path: user.pk}).order_by().values("pk") for path in (first, *others)]
    return rows.filter(pk__in=keys[0].union(*keys[1:]))


def blanks(model: type[models.Model]) -> dict[str, Any]:
    """Map each column that an erasure clears to its empty value."""
    columns: list[Any] = [model._meta.get_field(name) for name in erased_columns(model)]
    return {one.name: None if one.null else one.get_default() for one in columns}


def not_blank(model: type[models.Model]) -> models.Q:
    """Match the rows that still have content, for models whose rows are kept."""
    matching = models.Q()
    for name, blank in blanks(model).items():
        matching |= (
            models.Q(**{f"{name}__isnull": False}) if blank is None else ~models.Q(**{name: blank})
        )
    return matching


# Nothing new is written about a person who is being erased, even by a process that does not know of
# the erasure: rows from transactions that began before it are searched for
# (`memory.privacy.user_erasure`), later rows are refused. The log has no such trigger: an append
# checks under the lock of the user's row.
_TRIGGER = """
CREATE TRIGGER {0}_of_nobody_erased AFTER INSERT ON memory_{0} REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION memory_user_is_erased()
"""
_HAVE_TRIGGER = """
SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgfoid = to_regproc('memory_user_is_erased')
"""


def refuse_rows_of_erased(*, using: str, **_: Any) -> None:
    """Add the missing triggers that refuse rows about erased users; runs after every migration."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regproc('memory_user_is_erased')")
        if cursor.fetchone() == (None,):  # migrated back to before these triggers
            return
        cursor.execute(_HAVE_TRIGGER)
        guarded = {table for (table,) in cursor.fetchall()}
        tables = connections[using].introspection.table_names(cursor)
        for model in models_about_users():
            has_user = any(column.name == "user" for column in model._meta.concrete_fields)
            table, unguarded = model._meta.db_table, (LogEntry, UserErasure)
            if has_user and model not in unguarded and table in tables and table not in guarded:
                cursor.execute(_TRIGGER.format(model._meta.model_name))
