"""Workspaces and their API keys."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone

from memory.admin.base import link_to_list
from memory.models import ApiKey, MemoryUser, Workspace
from memory.models.workspaces import Scope
from memory.workspaces import create_key


@admin.register(Workspace)
class WorkspaceAdmin(admin.ModelAdmin[Workspace]):
    """Tenants."""

    list_display = ["name", "created_at", "users", "keys"]
    readonly_fields = ["public_id", "created_at", "users", "keys"]
    search_fields = ["name"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A workspace goes only with its users, which are erased and not deleted."""
        return False

    @admin.display(description="users")
    def users(self, workspace: Workspace) -> str:
        """Lead to the workspace's users."""
        return link_to_list(MemoryUser, "users", workspace__id__exact=workspace.pk)

    @admin.display(description="API keys")
    def keys(self, workspace: Workspace) -> str:
        """Lead to the workspace's keys."""
        return link_to_list(ApiKey, "API keys", workspace__id__exact=workspace.pk)


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin[ApiKey]):
    """Keys: shown once when they are made, revoked and never deleted."""

    list_display = [
        "name",
        "workspace",
        "prefix",
        "scopes",
        "expires_at",
        "revoked_at",
        "last_used_at",
    ]
    list_filter = ["workspace"]
    fields = ["workspace", "name", "scopes", "expires_at", "prefix", "revoked_at", "last_used_at"]
    readonly_fields = ["prefix", "revoked_at", "last_used_at"]
    actions = ["revoke"]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        """A key stays with its workspace."""
        return [*self.readonly_fields, *(["workspace"] if obj else [])]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keys are revoked, so that the log's sources still lead to them."""
        return False

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: ModelForm[ApiKey], change: bool
    ) -> None:
        """Make a new key and show its text this one time, or store what was changed."""
        if change:
            super().save_model(request, obj, form, change)
            return
        created, text = create_key(
            obj.workspace,
            obj.name,
            [Scope(scope) for scope in obj.scopes],
            expires_at=obj.expires_at,
        )
        obj.pk, obj.prefix, obj.digest = created.pk, created.prefix, created.digest
        obj._state.adding = False
        messages.success(request, f"The key is {text}. It cannot be shown again: copy it now.")

    @admin.action(description="Revoke the selected keys")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Make the keys useless at once."""
        number = queryset.filter(revoked_at=None).update(revoked_at=timezone.now())
        messages.success(request, f"Revoked {number} keys.")
