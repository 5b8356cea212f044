"""The screens of work and of tables that need nothing special: they derive from the columns."""

from collections.abc import Collection
from typing import Any, TypeVar

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memory.kernel.admin import masking
from memory.kernel.admin.actions import report
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import badge
from memory.kernel.admin.filters import presence_filter
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.privacy import privacy_of
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace, WorkspaceUse

Row = TypeVar("Row", bound=models.Model)
Work = TypeVar("Work", bound=LeasedWork)

_LONG = (models.TextField, models.JSONField)
_LARGE = (*_LONG, models.BinaryField)
_LEASE = [field.name for field in LeasedWork._meta.local_fields]

# Separates work that is still due from finished work.
UnderWayFilter = presence_filter("state", "due_at", filled="under way", empty="done")


class FailingFilter(admin.SimpleListFilter):
    """Selects pending work whose last attempt failed."""

    title = "last attempt"
    parameter_name = "failing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "failed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        failed = queryset.filter(due_at__isnull=False).exclude(last_error="")
        return failed if self.value() == "yes" else None


class WorkAdmin(ReadOnlyAdmin[Work]):
    """A screen for work that stays due until it is done; `when_done` is the state's name then."""

    when_done = "done"
    list_filter = [UnderWayFilter, FailingFilter, "created_at"]
    ordering = ["-created_at", "-id"]
    actions = ["try_now"]

    def actions_for(self, row: Any) -> Collection[str]:
        return [] if row.due_at is None else self.actions

    def get_fieldsets(self, request: HttpRequest, obj: Work | None = None) -> Any:
        work = section("Work status", *_LEASE, collapsed=True)
        return [*super().get_fieldsets(request, obj), work]

    @plain_column("state", "due_at")
    def state(self, row: Any) -> str:
        if row.due_at is None:
            return badge(self.when_done)
        if row.lease_owner:
            return badge("running", "in progress")
        return badge("failing" if row.last_error else "waiting")

    @admin.action(description="Retry now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Work]) -> None:
        chosen = queryset.count()
        number = self.retry(queryset)
        noun = str(self.opts.verbose_name)
        report(request, noun, number, chosen, "will be retried now", "nothing is pending")

    def retry(self, rows: QuerySet[Work]) -> int:
        """Make pending work due now, even after failures; the dispatcher then sends a hint."""
        return rows.filter(due_at__isnull=False).update(run_after=timezone.now(), hinted_at=None)


class TableAdmin(ReadOnlyAdmin[Row]):
    """A table's columns by their types: all on a row's page, the short ones in the list."""

    def __init__(self, model: type[Row], site: admin.AdminSite) -> None:
        columns = [
            column
            for column in model._meta.concrete_fields
            if column.name not in _LEASE and not isinstance(column, models.AutoField)
        ]
        # The first column links to the row's page, so it is a text that every row has.
        columns.sort(key=lambda column: column.is_relation or isinstance(column, _LARGE))
        first = columns[0]
        is_name = not (first.is_relation or first.null or isinstance(first, _LARGE))
        short = [column.name for column in columns if not isinstance(column, _LONG)]
        self.list_display = [*([] if is_name else ["name"]), *short]
        self._sections = [section(None, *(column.name for column in columns))]
        self._choices = [column.name for column in columns if column.choices]
        super().__init__(model, site)

    def get_fieldsets(self, request: HttpRequest, obj: Row | None = None) -> Any:
        return self._sections

    def get_list_select_related(self, request: HttpRequest) -> Any:
        """Add the rows by whose names the linked rows are called."""
        chosen = super().get_list_select_related(request)
        named = [
            f"{column.name}__{other.name}"
            for column in self.opts.concrete_fields
            if column.related_model is not None
            for other in column.related_model._meta.concrete_fields
            if other.related_model in (MemoryUser, User, Workspace)
        ]
        return [*chosen, *named] if isinstance(chosen, list | tuple) else named

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        filters = super().get_list_filter(request)
        return filters if self.list_filter else [*self._choices, *filters]

    @plain_column("name")
    def name(self, row: Row) -> str:
        return masking.name_of(row)


class WorkTableAdmin(WorkAdmin[Work], TableAdmin[Work]):
    """A table of work."""

    list_filter = [UnderWayFilter, FailingFilter]
    ordering = ["-id"]

    def __init__(self, model: type[Work], site: admin.AdminSite) -> None:
        super().__init__(model, site)
        self.list_display = [*self.list_display, "state", "attempts", "run_after"]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(TableAdmin[IdempotencyKey]):
    """The idempotency keys of writes made in the last few days."""

    search_fields = ["=key", "user__user_id"]
    search_help_text = "Search by full key or user id."


@admin.register(WorkspaceUse)
class WorkspaceUseAdmin(TableAdmin[WorkspaceUse]):
    """Usage by workspace; each workspace's own page shows its quotas."""

    ordering = ["-entries"]


def register_tables() -> None:
    """Register the models without a screen of their own."""
    for model in apps.get_app_config("memory").get_models():
        if not admin.site.is_registered(model) and privacy_of(model).section is not None:
            kind = WorkTableAdmin if issubclass(model, LeasedWork) else TableAdmin
            admin.site.register(model, kind)
