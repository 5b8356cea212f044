"""Workspaces and their API keys."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import capfirst

from memory.admin.base import MemoryAdmin, PresenceFilter, link_to_list
from memory.admin.display import NOTHING, badge, counted, lines
from memory.limits import BY_NAME, LIMITS, Limit, effective
from memory.models import ApiKey, MemoryUser, Workspace
from memory.models.workspaces import Scope
from memory.workspaces import create_key


@admin.register(Workspace)
class WorkspaceAdmin(MemoryAdmin[Workspace]):
    """Tenants."""

    list_display = ["name", "users", "keys", "own_limits", "created_at"]
    fieldsets = [
        (None, {"fields": ["name", "users", "keys", "public_id", "created_at"]}),
        (
            "Limits of the sandboxes",
            {
                "fields": ["in_effect", "single_use", *BY_NAME],
                "description": "Left empty, a limit is the server's. What is changed here"
                " holds from the next run on.",
            },
        ),
    ]
    readonly_fields = ["users", "keys", "in_effect", "public_id", "created_at"]
    search_fields = ["name", "=public_id"]
    search_help_text = "By name or public id."
    when_empty = "There is no workspace yet: add one, and a key for its backend."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workspace]:
        """Count users and keys along."""
        return (
            super()
            .get_queryset(request)
            .annotate(
                user_count=Count("users", distinct=True),
                key_count=Count("api_keys", distinct=True),
            )
        )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A workspace goes only with its users, which are erased and not deleted."""
        return False

    @admin.display(description="users", ordering="user_count")
    def users(self, workspace: Workspace) -> str:
        """Lead to the workspace's users."""
        text = counted(getattr(workspace, "user_count", 0), "user")
        return link_to_list(MemoryUser, text, workspace__id__exact=workspace.pk)

    @admin.display(description="API keys", ordering="key_count")
    def keys(self, workspace: Workspace) -> str:
        """Lead to the workspace's keys."""
        text = counted(getattr(workspace, "key_count", 0), "API key")
        return link_to_list(ApiKey, text, workspace__id__exact=workspace.pk)

    @admin.display(description="own limits")
    def own_limits(self, workspace: Workspace) -> str:
        """Name the limits that are not the server's."""
        own = [limit.name for limit in LIMITS if getattr(workspace, limit.name) is not None]
        return ", ".join(["single_use"] * workspace.single_use + own) or NOTHING

    @admin.display(description="in effect")
    def in_effect(self, workspace: Workspace) -> str:
        """Show every limit as it holds, where it is from, and how far it may be raised."""
        # A form that is refused has put into this one what does not hold.
        workspace = Workspace.objects.filter(pk=workspace.pk).first() or Workspace()
        holding, everywhere = asdict(workspace.limits), asdict(effective({}))
        labels = {field.name: field.verbose_name for field in Workspace._meta.concrete_fields}
        kept = settings.UAC_SANDBOX_LEASE_SECONDS
        life = f"kept for {kept:g} s after its last use, for the same user"
        if workspace.single_use or not kept:
            life = "destroyed after every use"
        return lines(
            ["Container: " + life]
            + [
                format_html(
                    "{}: <b>{}</b>, {}; at most {}",
                    capfirst(str(labels[limit.name])),
                    limit.amount(holding[limit.name]),
                    _origin(
                        limit,
                        getattr(workspace, limit.name),
                        holding[limit.name],
                        everywhere[limit.name],
                    ),
                    limit.amount(limit.most),
                )
                for limit in LIMITS
            ]
        )


def _origin(limit: Limit, chosen: float | None, holds: float, everywhere: float) -> str:
    if chosen is not None:
        return "chosen" if holds == chosen else f"although {limit.amount(chosen)} was chosen"
    if holds == everywhere:
        return "as everywhere"
    return f"not {limit.amount(everywhere)} as everywhere, because of the other limits"


class ApiKeyForm(forms.ModelForm[ApiKey]):
    """A key's name, what it may do, and until when."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=Scope.values,
        widget=forms.CheckboxSelectMultiple,
        help_text="What the key may do.",
    )

    class Meta:
        model = ApiKey
        fields = ["workspace", "name", "scopes", "expires_at"]


class RevokedFilter(PresenceFilter):
    """Keys that were revoked, or were not."""

    title = "whether it was revoked"
    parameter_name = "revoked"
    field, filled, empty = "revoked_at", "revoked", "not revoked"


@admin.register(ApiKey)
class ApiKeyAdmin(MemoryAdmin[ApiKey]):
    """Keys: shown once when they are made, revoked and never deleted."""

    form = ApiKeyForm
    list_display = [
        "name",
        "workspace",
        "standing",
        "starts_with",
        "may",
        "expires_at",
        "last_used_at",
    ]
    list_filter = [RevokedFilter, "workspace"]
    list_select_related = ["workspace"]
    search_fields = ["name", "prefix", "workspace__name"]
    search_help_text = "By name, the visible beginning or workspace."
    actions = ["revoke"]
    when_empty = "There is no key yet."
    readonly_fields = ["standing", "starts_with", "created_at", "revoked_at", "last_used_at"]

    def actions_for(self, row: ApiKey) -> Collection[str]:
        """Revoked once is revoked for good."""
        return [] if row.revoked_at else ["revoke"]

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        """Ask for what a new key needs; show of an old one what became of it, too."""
        asked = ["workspace", "name", "scopes", "expires_at"]
        return [*asked, *self.readonly_fields] if obj else asked

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        """A key stays with its workspace."""
        return [*self.readonly_fields, "workspace"] if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keys are revoked, so that the log's sources still lead to them."""
        return False

    @admin.display(description="state")
    def standing(self, key: ApiKey) -> str:
        """Say whether the key still opens anything."""
        if key.revoked_at:
            return badge("revoked")
        if key.expires_at and key.expires_at <= timezone.now():
            return badge("expired")
        return badge("valid")

    @admin.display(description="begins with", ordering="prefix")
    def starts_with(self, key: ApiKey) -> str:
        """Show the part of the key that is no secret."""
        return f"uac_{key.prefix}_…"

    @admin.display(description="may")
    def may(self, key: ApiKey) -> str:
        """Say what the key may do."""
        return ", ".join(key.scopes)

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: forms.ModelForm[ApiKey], change: bool
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
        messages.success(
            request,
            format_html(
                'The key is <code class="secret">{}</code> Copy it now: it cannot be shown again.',
                text,
            ),
        )

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Make the keys useless at once."""
        valid = list(queryset.filter(revoked_at=None))
        left = queryset.count() - len(valid)
        ApiKey.objects.filter(pk__in=[key.pk for key in valid]).update(revoked_at=timezone.now())
        for key in valid:
            self.log_change(request, key, "Revoked.")
        if valid:
            messages.success(request, f"{counted(len(valid), 'key')} revoked.")
        if left:
            messages.warning(request, f"{counted(left, 'key')} left: revoked already.")
