"""What models declare about privacy, next to their columns; everything else derives from it.

An inner class `Privacy` says how a user's rows are erased, which columns are `content` (about the
person: erased with the user, and hidden from staff who may not see content) and which are `plain`.
Columns that cannot hold text (numbers, dates, choices, references) are plain. A column that could,
and is not declared, is content, and a test fails. Whose rows they are follows from foreign keys.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models.leased import LeasedWork

Model: TypeAlias = type[models.Model]

# Columns of these types cannot hold text.
_TEXTLESS = (
    *(models.IntegerField, models.FloatField, models.DecimalField, models.BooleanField),
    *(models.DateField, models.UUIDField, models.ForeignKey),
)


class Erase(StrEnum):
    """The ways to erase a user's rows of a model."""

    REDACT = "redact"  # keep the row but clear its content: hashes and totals must still match
    DELETE = "delete"  # delete the row
    PSEUDONYMISE = "pseudonymise"  # keep the row as a tombstone without a name
    NOTHING = "nothing"  # no row is about a person; columns are plain unless marked as content


class Section(StrEnum):
    """The rooms of the admin, in their order; machinery is a part of the server's."""

    ALERTS = "Alerts"
    PEOPLE = "Users"
    CONSTRAINTS = "Constraints"
    LANGUAGE_MODELS = "Language models"
    DELIVERIES = "Deliveries"
    SERVER = "Server"
    ACCESS = "Access"
    MACHINERY = "Machinery"


@dataclass(frozen=True)
class Export:
    """A file of subject access: the rows of one model that belong to a person.

    `description` is the README's. `order` lists the columns that rows are sorted by; `chunk` rows
    are read at a time. `without` maps columns that are left out to the reason, besides those that
    `left_out` names.
    """

    name: str
    description: str
    order: Sequence[str] = ("pk",)
    chunk: int = 500
    without: Mapping[str, str] = field(default_factory=dict)


WORK = "the server's internal data about processing the row"
_NUMBER = "the row's number in the database; nothing else in this archive refers to it"
_OWNER = "the same person in every row"


@dataclass(frozen=True)
class Privacy:
    """A model's declarations, with defaults for what it does not declare.

    `identity` columns name the person: they are erased, but shown to all staff. `on_record` columns
    are hidden like content, but outlive the user. `export` may be the reason for leaving the rows
    out of subject access, in which `named_by` is the field that identifies a row. `owners` are the
    lookups to the user if several foreign keys may lead there. Without a `section`, a model has no
    screen of its own.
    """

    erase: Erase | None = None
    content: Collection[str] = ()
    identity: Collection[str] = ()
    on_record: Collection[str] = ()
    plain: Collection[str] = ()
    export: Export | str = ""
    section: Section | None = Section.MACHINERY
    owners: tuple[str, ...] = ()
    named_by: str = ""


@cache
def privacy_of(model: Model) -> Privacy:
    """Return what a model, or an abstract base of one, declares."""
    declared = vars(vars(model).get("Privacy", object))
    return Privacy(**{name: declared[name] for name in declared if not name.startswith("__")})


# -- Columns -----------------------------------------------------------------------------------


def kind_of(column: Any) -> str:
    """Return `content`, `identity`, `on_record` or `plain`; "" if the column is not declared."""
    for declaring in column.model.__mro__:
        for kind in ("content", "identity", "on_record", "plain"):
            if "Privacy" in vars(declaring) and column.name in getattr(privacy_of(declaring), kind):
                return kind
    base = column.base_field if isinstance(column, ArrayField) else column
    textless = isinstance(base, _TEXTLESS) or bool(column.choices)
    return "plain" if textless or privacy_of(column.model).erase is Erase.NOTHING else ""


@cache
def erased_columns(model: Model) -> list[str]:
    """Return the names of the columns that an erasure clears."""
    return [one.name for one in _columns(model) if kind_of(one) in ("content", "identity", "")]


@cache
def masked_columns(model: Model) -> list[str]:
    """Return the names of the columns hidden from staff who may not see content."""
    return [one.name for one in _columns(model) if kind_of(one) in ("content", "on_record", "")]


def left_out(model: Model) -> dict[str, str]:
    """Map the columns that subject access leaves out to the reasons."""
    privacy, reasons = privacy_of(model), {}
    for column in _columns(model):
        if isinstance(column, models.AutoField) and (privacy.named_by or not _is_referred(model)):
            reasons[column.name] = _NUMBER
        elif owner_paths(model) == (column.name,):
            reasons[column.name] = _OWNER
        elif column.name in _lease_columns(model):
            reasons[column.name] = WORK
    exported = privacy.export
    return {**reasons, **(exported.without if isinstance(exported, Export) else {})}


def _columns(model: Model) -> Sequence[Any]:
    return model._meta.concrete_fields


def _is_referred(model: Model) -> bool:
    return any(
        column.related_model is model
        for other in models_about_users()
        for column in _columns(other)
    )


def _lease_columns(model: Model) -> set[str]:
    if not issubclass(model, LeasedWork):
        return set()
    return {one.name for one in LeasedWork._meta.local_fields} - {"last_error"}


# -- Whose rows --------------------------------------------------------------------------------


@cache
def models_about_users() -> list[Model]:
    """Return the models whose rows belong to a user, the users' own included."""
    return [model for model in apps.get_app_config("memory").get_models() if owner_paths(model)]


@cache
def owner_paths(model: Model) -> tuple[str, ...]:
    """Return the lookups from a model's rows to their user; none if they belong to nobody.

    Several lookups mean that each row has its user behind one of them.
    """
    if declared := privacy_of(model).owners:
        return declared
    for path, reached in _reached(model):
        if owners := privacy_of(reached).owners:
            return tuple(path if one == "pk" else f"{path}__{one}" for one in owners)
    return ()


@cache
def workspace_path(model: Model) -> str | None:
    """Return the lookup from a model's rows to their workspace; None for rows of the server."""
    if model.__name__ == "Workspace":
        return "pk"
    paths = (path for path, reached in _reached(model) if reached.__name__ == "Workspace")
    return next(paths, None)


def _reached(model: Model) -> Iterator[tuple[str, Model]]:
    """Yield all models that foreign keys lead to, nearest first, with the lookups."""
    seen, left = {model}, deque([("", model)])
    while left:
        path, reached = left.popleft()
        for column in reached._meta.concrete_fields:
            target: Any = column.related_model
            if target is None or target in seen or not isinstance(column, models.ForeignKey):
                continue
            seen.add(target)
            yield f"{path}{column.name}", target
            left.append((f"{path}{column.name}__", target))
