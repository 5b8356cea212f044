"""List filters that several admin screens share."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import get_model_from_relation
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memory.staff import access
from memory.work import stuck


class OwnChoicesFilter(admin.RelatedFieldListFilter):
    """A filter by related row that offers only the related rows the staff member may see."""

    def field_choices(
        self, field: Any, request: HttpRequest, model_admin: Any
    ) -> list[tuple[str, Any]]:
        """Return the choices that the staff member may see."""
        found = super().field_choices(field, request, model_admin)
        model = get_model_from_relation(field)
        if model not in access.PLACES or access.sees_all(request.user):
            return found
        rows = access.seen_by(request.user, model._default_manager.all())
        seen = set(rows.values_list("pk", flat=True))
        return [(key, name) for key, name in found if key in seen]


class WorkFilter(admin.SimpleListFilter):
    """A list filter by work status, with the same statuses that the front page counts."""

    title = "work status"
    parameter_name = "work"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices: each state of each kind of work that this model stores."""
        kinds = [kind for kind in stuck.KINDS.values() if kind.model is model_admin.model]
        return [
            (f"{kind.name}.{how}", f"{kind.title}: {words}" if len(kinds) > 1 else words)
            for kind in kinds
            for how, words in stuck.STANDINGS.items()
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows in the chosen state."""
        name, _, how = (self.value() or "").partition(".")
        kind = stuck.KINDS.get(name)
        if kind is None or how not in stuck.STANDINGS or kind.model is not queryset.model:
            return None
        rows = stuck.by_standing(kind, timezone.now())[how]
        return queryset.filter(pk__in=rows.order_by().values("pk"))


class PresenceFilter(admin.SimpleListFilter):
    """A list filter that separates rows where a field is set from rows where it is empty."""

    field: str
    filled: str
    empty: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the two choices, with their labels."""
        return [("yes", self.filled), ("no", self.empty)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        """Keep the rows that match the choice."""
        if self.value() not in ("yes", "no"):
            return None
        return queryset.filter(**{f"{self.field}__isnull": self.value() == "no"})
