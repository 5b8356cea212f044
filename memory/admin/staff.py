"""The staff: whose workspaces each of them sees, beside their account; and what they did."""

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from memory.admin.base import ReadOnlyAdmin, link_to_key
from memory.admin.display import NOTHING, badge, inline, lines
from memory.models import MailCursor, StaffAccess, StaffAudit, StaffSubscription
from memory.models.staff import AuditKind
from memory.staff import access, audit

# So many workspaces are named in a list.
LISTED = 10
# What goes with an account.
_OF_ACCOUNT = (StaffAccess, StaffSubscription, MailCursor)


class StaffAccessInline(admin.StackedInline[StaffAccess, User]):
    """Which workspaces somebody sees. Who edits it may edit accounts, and sees all himself."""

    model = StaffAccess
    can_delete = False
    min_num = max_num = 1
    filter_horizontal = ["workspaces"]

    def _may(self, request: HttpRequest) -> bool:
        return request.user.has_perm("auth.change_user") and access.sees_all(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It names workspaces, so that it is for those who may edit it."""
        return self._may(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An account that has none gets one."""
        return self._may(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody gives what he does not have."""
        return self._may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """It goes with the account."""
        return False


class _Noted:
    """Has what is done with the accounts noted, too, with every change that Django logs."""

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Note who added it."""
        _note(request, AuditKind.ADD, [obj])
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Note who changed it, or its password."""
        _note(request, AuditKind.CHANGE, [obj])
        return super().log_change(request, obj, message)  # type: ignore[misc]

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Note who deleted them."""
        _note(request, AuditKind.ACT, queryset, "delete")
        return super().log_deletions(request, queryset)  # type: ignore[misc]


def _note(request: HttpRequest, kind: AuditKind, rows: Iterable[Model], what: str = "") -> None:
    for row in rows:
        subject = audit.Subject(model=str(row._meta.model_name), row=str(row.pk), number=1)
        audit.note(request.user, kind, subject, what)


admin.site.unregister([User, Group])


@admin.register(Group)
class RoleAdmin(_Noted, GroupAdmin):
    """The groups: what the staff may do. Those of docs/staff.md are the server's own."""


@admin.register(User)
class StaffUserAdmin(_Noted, UserAdmin[User]):
    """The accounts of the staff, with the workspaces that they see."""

    inlines = [StaffAccessInline]

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """A new account is asked for its name and password alone."""
        return self.inlines if obj else []

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Let go with an account what nobody deletes by hand; the audit of it stays."""
        names, counts, needed, protected = super().get_deleted_objects(objs, request)
        own = {str(model._meta.verbose_name) for model in _OF_ACCOUNT}
        return names, counts, {name for name in needed if str(name) not in own}, protected

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Have no password changed that is not noted."""
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)


@admin.register(StaffAccess)
class StaffAccessAdmin(ReadOnlyAdmin[StaffAccess]):
    """Who sees which workspaces; it is edited on the page of the account."""

    list_display = ["user", "sees", "roles"]
    list_display_links = ["user"]
    list_select_related = ["user"]
    search_fields = ["user__username", "workspaces__name"]
    search_help_text = "By user name or workspace."
    ordering = ["user__username"]
    when_empty = "Nobody but superusers sees any workspace."
    fields = ["account", "sees", "roles"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[StaffAccess]:
        """Fetch workspaces and groups along."""
        found = super().get_queryset(request).prefetch_related("workspaces", "user__groups")
        if not access.sees_all(request.user):  # it names workspaces
            return found.filter(user__username=request.user.get_username())
        return found

    @admin.display(description="account")
    def account(self, row: StaffAccess) -> str:
        """Lead to the account, where it is edited."""
        url = reverse("admin:auth_user_change", args=[row.user_id])
        return format_html('<a href="{}">{}</a>', url, inline(str(row.user)))

    @admin.display(description="workspaces")
    def sees(self, row: StaffAccess) -> str:
        """Name the workspaces."""
        if row.all_workspaces or row.user.is_superuser:
            return "all"
        names = [inline(one.name) for one in row.workspaces.all()]
        more = len(names) - LISTED
        return lines([*names[:LISTED], *([f"… and {more} more"] if more > 0 else [])])

    @admin.display(description="roles")
    def roles(self, row: StaffAccess) -> str:
        """Name the groups."""
        if row.user.is_superuser:
            return "superuser"
        return ", ".join(group.name for group in row.user.groups.all()) or NOTHING


@admin.register(StaffAudit)
class StaffAuditAdmin(ReadOnlyAdmin[StaffAudit]):
    """What the staff did and looked at, newest first. Nobody changes it, nor does the database."""

    list_display = ["at", "staff_name", "did", "what", "rows", "of_what", "whose", "workspace"]
    list_display_links = ["at"]
    list_filter = [
        "kind",
        ("at", admin.DateFieldListFilter),
        "workspace",
    ]
    list_select_related = ["workspace"]
    search_fields = ["=staff_name"]
    search_help_text = "By user name of the staff, or public id of a person."
    ordering = ["-id"]
    when_empty = "Nobody has done anything yet."
    fields = [
        *("at", "staff_name", "staff_id", "did", "what", "rows", "of_what", "whose"),
        *("workspace", "request_id"),
    ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[StaffAudit], search_term: str
    ) -> tuple[QuerySet[StaffAudit], bool]:
        """Find what concerns a person by the public id, which is no text."""
        term = search_term.strip()
        try:
            person = StaffAudit._meta.get_field("person").to_python(term or None)
        except ValidationError:
            return super().get_search_results(request, queryset, search_term)
        return queryset.filter(Q(person=person) if person else Q()), False

    @admin.display(description="did", ordering="kind")
    def did(self, row: StaffAudit) -> str:
        """Say what kind of thing it was."""
        return badge(row.kind, AuditKind(row.kind).label)

    @admin.display(description="rows", ordering="number")
    def rows(self, row: StaffAudit) -> str:
        """Say how many rows it was."""
        return f"{row.number:,}" if row.model else NOTHING

    @admin.display(description="of what")
    def of_what(self, row: StaffAudit) -> str:
        """Lead to the row, if it was one, or name the kind of rows."""
        if not row.model:
            return NOTHING
        try:
            model = apps.get_model(
                "auth" if row.model in ("user", "group") else "memory", row.model
            )
        except LookupError:  # of an earlier version
            return inline(f"{row.model} {row.row}")
        name = str(model._meta.verbose_name)
        return link_to_key(model, row.row, f"{name} {row.row[:8]}") if row.row else inline(name)

    @admin.display(description="person")
    def whose(self, row: StaffAudit) -> str:
        """Name the person by the public id, which stays when the person is erased."""
        return inline(str(row.person)) if row.person else NOTHING
