"""Frequent queries whose SQL is built only once.

Django takes longer to build one of these queries than PostgreSQL takes to execute it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Expression, Field, ForeignKey, Model, QuerySet

Row = TypeVar("Row", bound=Model)


class Parameter(Expression):
    """A placeholder in a queryset for a value supplied when the query is executed.

    `output_field` is required if the parameter is used in arithmetic.
    """

    def __init__(self, name: str, output_field: "Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: object, connection: object) -> tuple[str, tuple[Any, ...]]:
        """Return an SQL placeholder whose parameter is this object, for `Statement` to replace."""
        return "%s", (self,)


class Statement(Generic[Row]):
    """A queryset that contains `Parameter`s, whose values are supplied when it is executed.

    `build` must return the same queryset on every call; order the queryset only if the order
    matters. Only the named columns of the model and of related models ("user__time_zone") are read,
    plus their primary keys; other columns are deferred. "*", or no names at all, selects all
    columns of the model itself.
    """

    def __init__(self, build: Callable[[], QuerySet[Row]], *columns: str) -> None:
        self._build = build
        self._columns = columns

    def sql(self, **values: Any) -> tuple[str, list[Any]]:
        """Return the SQL and its parameters; raises KeyError if a value is missing."""
        text, parameters, _ = self._written
        return text, [values[one.name] if isinstance(one, Parameter) else one for one in parameters]

    def first(self, **values: Any) -> Row | None:
        """Return the first row for these values; `build` should already limit the queryset."""
        with connection.cursor() as cursor:
            cursor.execute(*self.sql(**values))
            row = cursor.fetchone()
        return None if row is None else self._written[2].build(row)

    @cached_property
    def _written(self) -> tuple[str, Sequence[Any], "_Instances[Row]"]:
        queryset = self._build()
        instances = _Instances(queryset.model, self._columns)
        text: str
        text, parameters = queryset.values_list(*instances.columns).query.sql_with_params()
        return text, parameters, instances


class _Instances(Generic[Row]):
    """Builds model instances, along with related instances, from a query's rows."""

    def __init__(self, model: type[Row], columns: Sequence[str], path: str = "") -> None:
        fields = model._meta.concrete_fields
        key = model._meta.pk.attname
        relations: dict[str, list[str]] = {}
        every = not columns or "*" in columns
        names = {field.attname for field in fields} if every else {key}
        for column in (one for one in columns if one != "*"):
            relation, separator, rest = column.partition("__")
            if separator:
                relations.setdefault(relation, []).append(rest)
            names.add(_reference(model, relation).attname if separator else column)
        own = [field for field in fields if field.attname in names]
        if unknown := names - {field.attname for field in own}:
            raise ValueError(f"{model.__name__} has no columns {', '.join(sorted(unknown))}")
        self._model = model
        self._names = [field.attname for field in own]
        self._key = self._names.index(key)
        self._converters = [
            (index, field.from_db_value)
            for index, field in enumerate(own)
            if hasattr(field, "from_db_value")
        ]
        self._related = {
            name: _Instances[Any](
                _reference(model, name).related_model, instances, f"{path}{name}__"
            )
            for name, instances in relations.items()
        }
        self.columns: list[str] = [f"{path}{name}" for name in self._names]
        for related in self._related.values():
            self.columns += related.columns

    def build(self, row: Sequence[Any]) -> Row | None:
        """Return the instance built from a row; None if an outer join found no related row."""
        if row[self._key] is None:
            return None
        own, rest = list(row[: len(self._names)]), row[len(self._names) :]
        for index, convert in self._converters:
            own[index] = convert(own[index], None, connection)
        instance = self._model.from_db(connection.alias, self._names, own)
        for relation, related in self._related.items():
            setattr(instance, relation, related.build(rest))
            rest = rest[len(related.columns) :]
        return instance


def _reference(model: type[Model], name: str) -> "ForeignKey[Any, Any]":
    field = model._meta.get_field(name)
    assert isinstance(field, ForeignKey)
    return field
