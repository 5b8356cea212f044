"""Staff: their accounts, the workspaces each may see, and the audit of their actions."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst

from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import NOTHING, badge, first_lines, inline
from memory.kernel.admin.links import link, link_to_key
from memory.kernel.admin.steady_lists import SteadyChangeList
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import access, audit, recent_sign_in
from memory.kernel.staff.models import AuditKind, StaffAccess, StaffAudit

# Maximum number of workspaces listed for an account.
LISTED = 10
# The field with which a form says which permissions the account had, apart from those of roles.
_OFFERED = "initial-user_permissions"


class StaffAccessInline(admin.StackedInline[StaffAccess, User]):
    """The workspaces that an account may see.

    Only staff who may change accounts and see all workspaces may edit this.
    """

    model = StaffAccess
    can_delete = False
    min_num = max_num = 1
    filter_horizontal = ["workspaces"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require access to all workspaces, since nobody may grant access that they do not have."""
        return request.user.has_perm("auth.change_user") and access.sees_all(request.user)

    # The inline names workspaces, so viewing it requires as much as editing it.
    has_view_permission = has_add_permission = has_change_permission

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: access is deleted along with the account."""
        return False


class _Noted:
    """Audits changes to accounts and roles, in addition to Django's own log.

    Whoever opens such a form must have proved recently who they are.
    """

    row_name = ""

    def _names(self, extra_context: dict[str, Any] | None, title: str) -> dict[str, Any]:
        """Return what the rows are called, which is not what Django calls its models."""
        opts: Any = self.opts  # type: ignore[attr-defined]
        return {
            "title": title,
            "row_name": self.row_name,
            "list_name": f"{capfirst(self.row_name)}s",
            "list_url": reverse(f"admin:auth_{opts.model_name}_changelist"),
            **(extra_context or {}),
        }

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        names = self._names(extra_context, f"{capfirst(self.row_name)}s")
        return super().changelist_view(request, names)  # type: ignore[misc]

    @recent_sign_in.required
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        title = capfirst(self.row_name) if object_id else f"Add {self.row_name}"
        return super().changeform_view(  # type: ignore[misc]
            request, object_id, form_url, self._names(extra_context, title)
        )

    @recent_sign_in.required
    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        return super().delete_view(request, object_id, extra_context)  # type: ignore[misc]

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        recent_sign_in.require(request)
        super().delete_queryset(request, queryset)  # type: ignore[misc]

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        _note(request, AuditKind.ADD, [obj])
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Audit a change to an account or role, including a password change."""
        _note(request, AuditKind.CHANGE, [obj])
        return super().log_change(request, obj, message)  # type: ignore[misc]

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        _note(request, AuditKind.ACT, queryset, "delete")
        return super().log_deletions(request, queryset)  # type: ignore[misc]


def _note(request: HttpRequest, kind: AuditKind, rows: Iterable[Model], what: str = "") -> None:
    for row in rows:
        subject = audit.Subject(model=str(row._meta.model_name), row=str(row.pk), number=1)
        audit.note(request.user, kind, subject, what)


admin.site.unregister([User, Group])
# What django-allauth registers would show secrets, and give an account to whoever changes it.
for _app in ("account", "mfa", "socialaccount", "usersessions"):
    _models = list(apps.get_app_config(_app).get_models())
    admin.site.unregister(filter(admin.site.is_registered, _models))


@admin.register(Group)
class RoleAdmin(_Noted, GroupAdmin):
    """Groups, which serve as staff roles; the server maintains those listed in docs/staff.md."""

    row_name = "role"


class RolesField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg] # no generic at runtime
    """A choice of roles, each with what it is for."""

    def label_from_instance(self, obj: Any) -> str:
        summary = access.summary_of(obj.name)
        return f"{obj.name}: {summary}" if summary else str(obj.name)


class StaffUserForm(UserChangeForm[User]):
    """The form of an account, which needs staff status for its roles to count."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("groups") and not cleaned.get("is_staff"):
            self.add_error(
                "is_staff",
                "An account with a role needs this: without it, every page of the admin refuses"
                " the account. To keep the account out, untick Active instead.",
            )
        return cleaned


@admin.register(User)
class StaffUserAdmin(_Noted, UserAdmin[User]):
    """Staff accounts, with their roles and the workspaces they may see."""

    class Media:
        css = {"all": ["memory/admin.css"]}

    row_name = "staff account"
    form = StaffUserForm
    inlines = [StaffAccessInline]
    filter_horizontal = ["user_permissions"]
    readonly_fields = ["last_login", "date_joined", "password_page"]

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Show permissions apart from those of roles only if the account already has some."""
        if obj is None:
            return super().get_fieldsets(request, obj)
        # What the form that is sent did not offer must not count as taken away.
        is_sent = request.method == "POST"
        has_more = _OFFERED in request.POST if is_sent else obj.user_permissions.exists()
        more = ["user_permissions"] if has_more else []
        return [
            section(None, "username", "password_page", "is_active", "is_staff", "email"),
            section("What it may do", "groups", "is_superuser", *more),
            section("More", "first_name", "last_name", "last_login", "date_joined", collapsed=True),
        ]

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer each role with what it is for."""
        if db_field.name == "groups":
            kwargs |= {"form_class": RolesField, "widget": forms.CheckboxSelectMultiple}
            kwargs["label"] = "Roles"
            kwargs["help_text"] = "An account with several roles may do what any of them allows."
        else:
            kwargs["show_hidden_initial"] = True  # as _OFFERED
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the permissions only if they were changed: others may have changed them since."""
        if "user_permissions" not in form.changed_data:
            form.cleaned_data.pop("user_permissions", None)
        super().save_related(request, form, formsets, change)

    @admin.display(description="password")
    def password_page(self, account: User) -> str:
        has_one = account.has_usable_password()
        url = reverse("admin:auth_user_password_change", args=[account.pk])
        verb = "Change the password" if has_one else "No password. Set one"
        return format_html('<a href="{}">{}</a>', url, verb)

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """Leave out the inline for a new account, which needs only a name and a password."""
        return self.inlines if obj else []

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Allow an account's own rows to be deleted with it; its audit entries stay."""
        names, counts, needed, protected = super().get_deleted_objects(objs, request)
        ours = apps.get_app_config("memory").get_models()
        own = {str(model._meta.verbose_name) for model in ours}
        return names, counts, {name for name in needed if str(name) not in own}, protected

    @recent_sign_in.required
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Change a password and write the audit entry in one transaction."""
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)


@admin.register(StaffAccess)
class StaffAccessAdmin(ReadOnlyAdmin[StaffAccess]):
    """The workspaces that each account may see, which are edited on the account's page."""

    list_display = ["user", "sees", "roles"]
    list_display_links = ["sees"]
    list_select_related = ["user"]
    search_fields = ["user__username", "workspaces__name"]
    search_help_text = "Search by user name or workspace."
    ordering = ["user__username"]
    when_empty = "So far, only superusers can see workspaces."
    fields = ["account", "sees", "roles"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[StaffAccess]:
        rows = super().get_queryset(request).prefetch_related("workspaces", "user__groups")
        if not access.sees_all(request.user):  # other accounts' rows would reveal workspaces
            return rows.filter(user__username=request.user.get_username())
        return rows

    @plain_column("account")
    def account(self, row: StaffAccess) -> str:
        url = reverse("admin:auth_user_change", args=[row.user_id])
        return format_html('<a href="{}">{}</a>', url, inline(str(row.user)))

    @plain_column("workspaces")
    def sees(self, row: StaffAccess) -> str:
        if row.all_workspaces or row.user.is_superuser:
            return "all"
        return first_lines([inline(one.name) for one in row.workspaces.all()], LISTED)

    @plain_column("roles")
    def roles(self, row: StaffAccess) -> str:
        if row.user.is_superuser:
            return "superuser"
        return ", ".join(group.name for group in row.user.groups.all()) or NOTHING


class AuditChangeList(SteadyChangeList):
    """The list of the audit log, which reads at once whom all its rows concern."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        people = _people_of(self.result_list)
        for row in self.result_list:
            row.__dict__["people"] = people


def _people_of(rows: Iterable[StaffAudit]) -> Mapping[UUID, MemoryUser]:
    """Map public ids to the users whom these rows concern and who have not been erased since."""
    ids = {row.person for row in rows if row.person}
    return MemoryUser.objects.select_related("workspace").in_bulk(ids, field_name="public_id")


@admin.register(StaffAudit)
class StaffAuditAdmin(ReadOnlyAdmin[StaffAudit]):
    """The audit log of staff actions, newest first. The database rejects any change to it."""

    list_display = ["at", "staff_name", "did", "what", "rows", "of_what", "person_id", "workspace"]
    list_display_links = ["at"]
    list_filter = [
        "kind",
        "at",
        "workspace",
    ]
    list_select_related = ["workspace"]
    search_fields = ["=staff_name"]
    search_help_text = "Search by a staff member's user name or a user's public id."
    ordering = ["-id"]
    when_empty = "No staff action has been recorded yet."
    fields = [
        *("at", "staff_name", "staff_id", "did", "what", "rows", "of_what", "person_id"),
        *("workspace", "request_id"),
    ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return AuditChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[StaffAudit], search_term: str
    ) -> tuple[QuerySet[StaffAudit], bool]:
        """Also search by a person's public id, which is not a text column."""
        term = search_term.strip()
        try:
            person = StaffAudit._meta.get_field("person").to_python(term or None)
        except ValidationError:
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(Q(person=person) if person else Q()), False

    @plain_column("kind", "kind")
    def did(self, row: StaffAudit) -> str:
        return badge(row.kind, AuditKind(row.kind).label)

    @plain_column("rows", "number")
    def rows(self, row: StaffAudit) -> str:
        return f"{row.number:,}" if row.model else NOTHING

    @plain_column("row")
    def of_what(self, row: StaffAudit) -> str:
        if not row.model:
            return NOTHING
        try:
            model = apps.get_model(
                "auth" if row.model in ("user", "group") else "memory", row.model
            )
        except LookupError:  # a model from an earlier version of the server
            return inline(f"{row.model} {row.row}")
        name = str(model._meta.verbose_name)
        return link_to_key(model, row.row, f"{name} {row.row[:8]}") if row.row else inline(name)

    @plain_column("person")
    def person_id(self, row: StaffAudit) -> str:
        """Name the person or, once they are erased, show their public id, which remains."""
        people = row.__dict__["people"] if "people" in row.__dict__ else _people_of([row])
        if row.person is None:
            return NOTHING
        user = people.get(row.person)
        return link(user) if user else inline(str(row.person))
