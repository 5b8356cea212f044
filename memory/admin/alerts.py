"""Alerts."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from memory import alerts
from memory.admin.base import NOTHING, ReadOnlyAdmin, link, links_to_entries, preformatted, pretty
from memory.checkpoints import read_files
from memory.models import Alert, AlertEvent


class AlertEventInline(admin.TabularInline[AlertEvent, Alert]):
    """The alert's history."""

    model = AlertEvent
    extra = 0
    can_delete = False
    fields = ["at", "kind", "actor", "run", "detail"]
    ordering = ["at", "id"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History is not written by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History is not changed."""
        return False


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    """What the constraints found: the message, and the whole way back to what was said."""

    list_display = ["message_short", "severity", "state", "user_link", "constraint", "opened_at"]
    list_filter = ["state", "severity", "kind", "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id", "constraint"]
    ordering = ["-opened_at"]
    actions = ["acknowledge", "resolve"]
    fields = [
        "user_link",
        "severity",
        "message",
        "state",
        "kind",
        "records",
        "said",
        "rule",
        "opened_at",
        "changed_at",
        "resolved_at",
        "run_link",
        "fingerprint",
    ]
    inlines = [AlertEventInline]

    @admin.display(description="message")
    def message_short(self, alert: Alert) -> str:
        """Show the beginning of the message."""
        return alert.message if len(alert.message) <= 120 else alert.message[:119] + "…"

    @admin.display(description="user")
    def user_link(self, alert: Alert) -> str:
        """Lead to the user."""
        return link(alert.user)

    @admin.display(description="run")
    def run_link(self, alert: Alert) -> str:
        """Lead to the run that found it last."""
        return link(alert.last_run)

    @admin.display(description="records it rests on")
    def records(self, alert: Alert) -> str:
        """Name the records."""
        rows = [
            (item["class"], item["key"], f"{item['domain']}.{item['collection']}")
            for item in alert.evidence
        ]
        return format_html_join("", "<div>{} <b>{}</b> in {}</div>", rows) or NOTHING

    @admin.display(description="log entries behind them")
    def said(self, alert: Alert) -> str:
        """Lead to the entries."""
        return links_to_entries(alert.user, alert.entries)

    @admin.display(description="constraint")
    def rule(self, alert: Alert) -> str:
        """Show the constraint's source, as of the run that found it last."""
        checkpoint = alert.last_run.checkpoint if alert.last_run else None
        if checkpoint is None or alert.constraint not in checkpoint.tree:
            return alert.constraint
        source = read_files(checkpoint, [alert.constraint])[alert.constraint]
        return format_html("<div>{}</div>{}", alert.constraint, preformatted(source))

    @admin.action(description="Acknowledge the selected alerts", permissions=["operate"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Mark them as seen."""
        self._each(request, queryset, "Acknowledged", alerts.acknowledge)

    @admin.action(description="Resolve the selected alerts", permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Close them; a constraint that still finds the same opens a new one."""
        self._each(request, queryset, "Resolved", alerts.resolve, reason="resolved by staff")

    def _each(
        self, request: HttpRequest, queryset: QuerySet[Alert], done: str, act: Any, **how: Any
    ) -> None:
        number = 0
        for alert in queryset:
            try:
                act(alert, actor=f"staff:{request.user.get_username()}", **how)
                number += 1
            except alerts.AlertNotOpen:
                continue
        messages.success(request, f"{done} {number} alerts.")


@admin.register(AlertEvent)
class AlertEventAdmin(ReadOnlyAdmin[AlertEvent]):
    """What happened to alerts, newest first."""

    list_display = ["at", "kind", "actor", "alert_link"]
    list_filter = ["kind"]
    list_select_related = ["alert"]
    ordering = ["-at"]
    fields = ["alert_link", "kind", "at", "actor", "run", "details"]

    @admin.display(description="alert")
    def alert_link(self, event: AlertEvent) -> str:
        """Lead to the alert."""
        return link(event.alert)

    @admin.display(description="detail")
    def details(self, event: AlertEvent) -> str:
        """Show the detail."""
        return pretty(event.detail)
