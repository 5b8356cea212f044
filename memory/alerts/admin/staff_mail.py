"""Staff members' e-mail subscriptions to alerts."""

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from memory.alerts.delivery import staff_mail
from memory.alerts.models.staff_mail import MailCursor, StaffSubscription
from memory.kernel.admin.base import MemoryAdmin, section
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import badge, inline
from memory.kernel.admin.tables import TableAdmin


@admin.register(StaffSubscription)
class StaffSubscriptionAdmin(MemoryAdmin[StaffSubscription]):
    """Subscriptions: their scope, their schedule, and whether e-mails are being sent."""

    list_display = [
        *("staff", "workspace_name", "standing", "least_severity", "mode", "escalations"),
        *("sent_at", "last_error"),
    ]
    list_display_links = ["standing"]
    list_filter = ["enabled", "mode", "workspace"]
    list_select_related = ["staff", "workspace"]
    search_fields = ["staff__username", "staff__email", "workspace__name"]
    search_help_text = "Search by user name, e-mail address or workspace."
    when_empty = "There are no e-mail subscriptions to alerts yet."
    fieldsets = [
        section(None, "staff", "workspace", "enabled"),
        section("What", "least_severity", "escalations", "operations"),
        section("When", "mode", ("hour", "time_zone")),
        section("E-mails", "standing", "sent_at", "digest_due_at", "last_error"),
    ]
    readonly_fields = ["standing", "sent_at", "digest_due_at", "last_error"]

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

    @plain_column("workspace", "workspace__name")
    def workspace_name(self, subscription: StaffSubscription) -> str:
        return inline(subscription.workspace.name) if subscription.workspace else "all"

    @plain_column("state")
    def standing(self, subscription: StaffSubscription) -> str:
        if not subscription.enabled:
            return badge("stopped", "off")
        return badge("failing") if subscription.last_error else badge("valid", "on")


@admin.register(MailCursor)
class MailCursorAdmin(TableAdmin[MailCursor]):
    """The last event e-mailed, for each subscription and workspace."""

    search_fields = ["subscription__staff__username", "workspace__name"]
    search_help_text = "Search by user name or workspace."
