"""Staff members' e-mail subscriptions to alerts."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from memory.admin.base import MemoryAdmin, ReadOnlyAdmin
from memory.admin.display import NOTHING, badge, inline, shortened
from memory.admin.links import link
from memory.delivery import staff_mail
from memory.models import MailCursor, StaffSubscription


@admin.register(StaffSubscription)
class StaffSubscriptionAdmin(MemoryAdmin[StaffSubscription]):
    """Subscriptions: their scope, their schedule, and whether e-mails are being sent."""

    list_display = [
        *("staff", "workspace_name", "standing", "least_severity", "mode", "escalations"),
        *("sent_at", "trouble"),
    ]
    list_filter = ["enabled", "mode", "workspace"]
    list_select_related = ["staff", "workspace"]
    search_fields = ["staff__username", "staff__email", "workspace__name"]
    search_help_text = "Search by user name, e-mail address or workspace."
    when_empty = "There are no e-mail subscriptions to alerts yet."
    fieldsets = [
        (None, {"fields": ["staff", "workspace", "enabled"]}),
        ("What", {"fields": ["least_severity", "escalations", "operations"]}),
        ("When", {"fields": ["mode", ("hour", "time_zone")]}),
        ("E-mails", {"fields": ["standing", "sent_at", "digest_due_at", "trouble"]}),
    ]
    readonly_fields = ["standing", "sent_at", "digest_due_at", "trouble"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: subscriptions are disabled instead, so that they stay visible."""
        return False

    def save_model(
        self,
        request: HttpRequest,
        obj: StaffSubscription,
        form: forms.ModelForm[StaffSubscription],
        change: bool,
    ) -> None:
        """Store the subscription; a new, moved or just enabled one covers only later events."""
        if not change or {"staff", "workspace", "enabled"} & set(form.changed_data):
            staff_mail.start(obj, timezone.now())
        else:
            staff_mail.change(obj, form.changed_data, timezone.now())

    @admin.display(description="workspace", ordering="workspace__name")
    def workspace_name(self, subscription: StaffSubscription) -> str:
        """Show the name of the workspace, or that the subscription is for all workspaces."""
        return inline(subscription.workspace.name) if subscription.workspace else "all"

    @admin.display(description="state")
    def standing(self, subscription: StaffSubscription) -> str:
        """Show whether the subscription is on, off or failing."""
        if not subscription.enabled:
            return badge("stopped", "off")
        return badge("failing") if subscription.last_error else badge("valid", "on")

    @admin.display(description="last error")
    def trouble(self, subscription: StaffSubscription) -> str:
        """Show why the last e-mail could not be sent."""
        return inline(shortened(subscription.last_error)) if subscription.last_error else NOTHING


@admin.register(MailCursor)
class MailCursorAdmin(ReadOnlyAdmin[MailCursor]):
    """The last event e-mailed, for each subscription and workspace."""

    list_display = ["name", "workspace_name", "seq", "escalations_seq"]
    list_display_links = ["seq"]
    list_select_related = ["subscription__staff", "subscription__workspace", "workspace"]
    search_fields = ["subscription__staff__username", "workspace__name"]
    search_help_text = "Search by user name or workspace."
    when_empty = "No e-mail has been sent yet."
    fields = ["name", "workspace_name", "seq", "escalations_seq"]

    @admin.display(description="subscription")
    def name(self, cursor: MailCursor) -> str:
        """Link to the subscription."""
        return link(cursor.subscription)

    @admin.display(description="workspace", ordering="workspace__name")
    def workspace_name(self, cursor: MailCursor) -> Any:
        """Link to the workspace."""
        return link(cursor.workspace)
