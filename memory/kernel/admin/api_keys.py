"""API keys: creation, replacement and revocation."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html

from memory.kernel.admin.actions import report
from memory.kernel.admin.base import MemoryAdmin
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import NOTHING, badge, counted
from memory.kernel.admin.filters import presence_filter
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope
from memory.kernel.staff import access, recent_sign_in
from memory.kernel.workspaces import NotReplaced, UnknownUsers, create_key, persons, replace_key


class ApiKeyForm(forms.ModelForm[ApiKey]):
    """The form for a key's name, scopes, users and expiry.

    `grants_manage` is true if the current staff member may grant the `manage` scope.
    """

    grants_manage = False

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=[Scope.READ, Scope.WRITE],
        widget=forms.CheckboxSelectMultiple,
        help_text="What requests made with this key may do.",
    )
    users = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="To limit the key to certain users' data, enter their ids, one per line. Leave"
        " empty to allow all users.",
    )

    class Meta:
        model = ApiKey
        fields = ["workspace", "name", "scopes", "expires_at"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "users" in self.fields:
            self.fields["users"].initial = "\n".join(_names(self.instance))
        scopes = self.fields.get("scopes")  # read-only staff get a form without fields
        if isinstance(scopes, forms.MultipleChoiceField) and not self.grants_manage:
            scopes.choices = [one for one in Scope.choices if one[0] != Scope.MANAGE]

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        workspace = cleaned.get("workspace") or getattr(self.instance, "workspace", None)
        names = [name.strip() for name in cleaned.get("users", "").splitlines() if name.strip()]
        if "users" not in self.changed_data or workspace is None:
            return cleaned
        kept = self.instance.user_pks
        try:
            chosen = persons(workspace, names) if names else None
        except UnknownUsers as error:
            self.add_error("users", str(error))
            return cleaned
        if chosen is None and kept is not None:
            self.add_error(
                "users",
                "The key is limited to certain users: name at least one user, or revoke the key.",
            )
        else:
            self.instance.user_pks = chosen
        return cleaned


def _names(key: ApiKey) -> list[str]:
    """Return the ids of the users that a key is limited to."""
    users = MemoryUser.objects.filter(pk__in=key.user_pks or ())
    return list(users.order_by("user_id").values_list("user_id", flat=True))


@admin.register(ApiKey)
class ApiKeyAdmin(MemoryAdmin[ApiKey]):
    """API keys. A key is shown only once, on creation, and can be revoked but not deleted.

    A key may be allowed to do more than the person who creates it. Creating a key therefore
    requires access to content, since a key can read content, plus permission to grant `manage` if
    the key has that scope. Anyone who may change keys can revoke any key.
    """

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
    list_filter = [
        presence_filter("revoked", "revoked_at", filled="revoked", empty="not revoked"),
        "workspace",
    ]
    list_select_related = ["workspace"]
    search_fields = ["name", "prefix", "workspace__name"]
    search_help_text = "Search by name, visible prefix or workspace."
    actions = ["replace", "revoke"]
    consequences = {
        "replace": "Each key gets a successor with the same rights, which is shown once. The old"
        " key stays valid for a day.",
        "revoke": "Requests with these keys are refused from now on. This cannot be undone.",
    }
    asking = [*consequences]
    dangerous = ["revoke"]
    when_empty = "There are no API keys yet."
    readonly_fields = [
        *("standing", "starts_with", "created_at", "revoked_at", "last_used_at", "replaced"),
    ]

    def actions_for(self, row: ApiKey) -> Collection[str]:
        """Offer no actions for a revoked key, since revocation is final."""
        return [] if row.revoked_at else ["replace", "revoke"]

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        fields = ["workspace", "name", "scopes", "users", "expires_at"]
        return [*fields, *self.readonly_fields] if obj else fields

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> list[str]:
        return [*self.readonly_fields, "workspace"] if obj else []

    def get_form(
        self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        # Each call returns a new class, so the attribute set here affects only this request.
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.grants_manage = request.user.has_perm(access.GRANT_MANAGE)
        return form

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require access to content, since a key can read content."""
        return super().has_add_permission(request) and access.sees_content(request.user)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Require access to content, since a key can read content.

        For a key with the `manage` scope, also require permission to grant that scope.
        """
        manages = obj is not None and Scope.MANAGE in obj.scopes
        if manages and not request.user.has_perm(access.GRANT_MANAGE):
            return False
        return super().has_change_permission(request, obj) and access.sees_content(request.user)

    @plain_column("state")
    def standing(self, key: ApiKey) -> str:
        if key.revoked_at:
            return badge("revoked")
        if key.expires_at and key.expires_at <= timezone.now():
            return badge("expired")
        return badge("valid")

    @plain_column("prefix", "prefix")
    def starts_with(self, key: ApiKey) -> str:
        """Show the key's prefix, which isn't secret."""
        return f"uac_{key.prefix}_…"

    @plain_column("scopes")
    def may(self, key: ApiKey) -> str:
        scopes = ", ".join(key.scopes)
        if key.user_pks is None:
            return scopes
        return f"{scopes}; only for {counted(len(key.user_pks), 'user')}"

    @plain_column("replaces")
    def replaced(self, key: ApiKey) -> str:
        return self.starts_with(key.replaces) if key.replaces else NOTHING

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: forms.ModelForm[ApiKey], change: bool
    ) -> None:
        if Scope.MANAGE in obj.scopes:
            recent_sign_in.require(request)
        if change:
            super().save_model(request, obj, form, change)
            return
        created, text = create_key(
            obj.workspace,
            obj.name,
            [Scope(scope) for scope in obj.scopes],
            expires_at=obj.expires_at,
            user_pks=obj.user_pks,
        )
        obj.pk, obj.prefix, obj.digest = created.pk, created.prefix, created.digest
        obj._state.adding = False
        messages.success(
            request,
            format_html(
                "Copy the new key now, since it cannot be shown again:"
                ' <code class="secret">{}</code>',
                text,
            ),
        )

    @admin.action(description="Replace the selected keys", permissions=["operate"])
    def replace(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Replace each valid key with a new one; the old one stays valid for another day."""
        if any(Scope.MANAGE in key.scopes for key in queryset):
            recent_sign_in.require(request)
        may_add = self.has_add_permission(request)
        for key in queryset.select_related("workspace"):
            if not (may_add and self.has_change_permission(request, key)):
                messages.warning(
                    request, f"{key} was skipped: you do not have permission to replace it."
                )
                continue
            try:
                new, text = replace_key(key)
            except NotReplaced as error:
                messages.warning(request, f"{key} was skipped: {error}")
                continue
            self.log_change(request, key, f"Replaced by uac_{new.prefix}_….")
            messages.success(
                request,
                format_html(
                    "The new key replaces {}, which stays valid until {} UTC. Copy the new key"
                    ' now, since it cannot be shown again: <code class="secret">{}</code>',
                    key,
                    f"{ApiKey.objects.get(pk=key.pk).expires_at:%Y-%m-%d %H:%M}",
                    text,
                ),
            )

    @admin.action(description="Revoke the selected keys", permissions=["operate"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        valid = list(queryset.filter(revoked_at=None))
        chosen = queryset.count()
        ApiKey.objects.filter(pk__in=[key.pk for key in valid]).update(revoked_at=timezone.now())
        for key in valid:
            self.log_change(request, key, "Revoked.")
        report(request, "key", len(valid), chosen, "revoked", "already revoked")
