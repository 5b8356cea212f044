"""The screens of tables that need nothing special: they derive from the models' columns."""

from typing import Any, TypeVar

from django.apps import apps
from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from memory.admin.base import ReadOnlyAdmin, section
from memory.alerts.models.staff_mail import MailCursor
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.privacy import privacy_of
from memory.kernel.models.workspaces import WorkspaceUse
from memory.llm.models import LlmSpending
from memory.versions.models.checkpoints import Bytecode

Row = TypeVar("Row", bound=models.Model)

_LARGE = (models.TextField, models.JSONField, models.BinaryField)
# Of the work that a row represents, what its page shows.
_LEASE = [field.name for field in LeasedWork._meta.local_fields]


class TableAdmin(ReadOnlyAdmin[Row]):
    """A table's columns by their types: all on a row's page, the short ones in the list."""

    def __init__(self, model: type[Row], site: admin.AdminSite) -> None:
        is_work = issubclass(model, LeasedWork)
        columns = [one for one in model._meta.concrete_fields if one.name not in _LEASE]
        columns = [one for one in columns if not isinstance(one, models.AutoField)]
        # The first column links to the row's page, so it must not be a link itself.
        columns.sort(key=lambda column: column.is_relation or isinstance(column, _LARGE))
        names = [column.name for column in columns]
        long: Any = (models.TextField, models.JSONField)
        short = [one.name for one in columns if not isinstance(one, long)]
        self.list_display = [*short, *(["attempts", "run_after"] if is_work else [])]
        self._sections = [section(None, *names)]
        if is_work:
            self._sections.append(section("Work status", *_LEASE, collapsed=True))
        self._choices = [one.name for one in columns if one.choices]
        super().__init__(model, site)

    def get_fieldsets(self, request: HttpRequest, obj: Row | None = None) -> Any:
        return self._sections

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        filters = super().get_list_filter(request)
        return filters if self.list_filter else [*self._choices, *filters]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(TableAdmin[IdempotencyKey]):
    """The idempotency keys of writes made in the last few days."""

    search_fields = ["=key", "user__user_id"]
    search_help_text = "Search by full key or user id."


@admin.register(Bytecode)
class BytecodeAdmin(TableAdmin[Bytecode]):
    """Compiled project files."""

    search_fields = ["path", "user__user_id"]
    search_help_text = "Search by path or user id."


@admin.register(MailCursor)
class MailCursorAdmin(TableAdmin[MailCursor]):
    """The last event e-mailed, for each subscription and workspace."""

    search_fields = ["subscription__staff__username", "workspace__name"]
    search_help_text = "Search by user name or workspace."


@admin.register(WorkspaceUse)
class WorkspaceUseAdmin(TableAdmin[WorkspaceUse]):
    """Usage by workspace; each workspace's own page shows its quotas."""

    ordering = ["-entries"]


@admin.register(LlmSpending)
class LlmSpendingAdmin(TableAdmin[LlmSpending]):
    """The spending ledger, by day, model, purpose and outcome; budgets are checked against it."""

    list_filter = ["purpose", "outcome", ("model", admin.AllValuesFieldListFilter), "day"]
    search_fields = ["model", "workspace__name"]
    search_help_text = "Search by model or workspace."


def register_tables() -> None:
    """Register the models without a screen of their own."""
    for model in apps.get_app_config("memory").get_models():
        if not admin.site.is_registered(model) and privacy_of(model).section is not None:
            admin.site.register(model, TableAdmin)
