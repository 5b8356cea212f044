"""List filters that several admin screens share."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import get_model_from_relation
from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memory.kernel import instants
from memory.kernel.staff import access
from memory.kernel.work import stuck
from memory.kernel.work.kinds import KINDS


def with_whole_days(model: type[Model], lookups: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return a list's lookups, in which a day compared with a time stands for all of its time.

    The database would take the day for its midnight in the admin's time zone.
    """
    result: dict[str, list[str]] = {}
    for name, values in lookups.items():
        field, _, operator = name.partition("__")
        bounds = _BOUNDS.get(operator)
        spans = [_day(value) for value in values]
        if bounds is None or None in spans or not _is_time(model, field):
            result[name] = values
            continue
        for how, edge in bounds.items():
            result[f"{field}__{how}"] = [str(getattr(span, edge)) for span in spans]
    return result


_EXACT = {"gte": "first", "lte": "last"}
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "": _EXACT,
    "exact": _EXACT,
    "gt": {"gt": "last"},
    "gte": {"gte": "first"},
    "lt": {"lt": "first"},
    "lte": {"lte": "last"},
}


def _day(value: str) -> instants.Span | None:
    if not instants.is_day(value):
        return None
    try:
        return instants.span_in(timezone.get_current_timezone_name(), value)
    except instants.BadMoment:
        return None  # the database rejects it


def _is_time(model: type[Model], name: str) -> bool:
    try:
        return isinstance(model._meta.get_field(name), DateTimeField)
    except FieldDoesNotExist:
        return False


class OwnChoicesFilter(admin.RelatedFieldListFilter):
    """A filter by related row that offers only the related rows the staff member may see."""

    def field_choices(
        self, field: Any, request: HttpRequest, model_admin: Any
    ) -> list[tuple[str, Any]]:
        choices = super().field_choices(field, request, model_admin)
        model = get_model_from_relation(field)
        if model._meta.app_label != "memory" or access.sees_all(request.user):
            return choices
        rows = access.seen_by(request.user, model._default_manager.all())
        seen = set(rows.values_list("pk", flat=True))
        return [(key, name) for key, name in choices if key in seen]


class WorkFilter(admin.SimpleListFilter):
    """A list filter by work status, with the same statuses that the front page counts."""

    title = "work status"
    parameter_name = "work"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        kinds = [kind for kind in KINDS.values() if kind.model is model_admin.model]
        return [
            (f"{kind.name}.{how}", f"{kind.label}: {words}" if len(kinds) > 1 else words)
            for kind in kinds
            for how, words in stuck.STATUSES.items()
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        name, _, how = (self.value() or "").partition(".")
        kind = KINDS.get(name)
        if kind is None or how not in stuck.STATUSES or kind.model is not queryset.model:
            return None
        rows = stuck.rows_by_status(kind, timezone.now())[how]
        return queryset.filter(pk__in=rows.order_by().values("pk"))


class PresenceFilter(admin.SimpleListFilter):
    """A list filter that separates rows where a field is set from rows where it is empty."""

    title = "state"
    field: str
    filled: str
    empty: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", self.filled), ("no", self.empty)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        if self.value() not in ("yes", "no"):
            return None
        return queryset.filter(**{f"{self.field}__isnull": self.value() == "no"})


def presence_filter(
    parameter: str, field: str, *, filled: str, empty: str
) -> type[admin.SimpleListFilter]:
    """Return a filter by whether a field is set, with the labels of its two choices."""
    options = {"parameter_name": parameter, "field": field, "filled": filled, "empty": empty}
    return type("PresenceFilter", (PresenceFilter,), options)
