"""Admin screens for alert events: a single alert's history and the whole feed."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import NOTHING, badge, facts, inline, lines, shortened
from memory.admin.links import entry_pages, link, link_to_rejected
from memory.delivery import rejections
from memory.models import Alert, AlertEvent, EventCounter


class _Step:
    """Columns shared by the event list and the history on an alert's page."""

    @admin.display(description="step", ordering="kind")
    def step(self, event: AlertEvent) -> str:
        """Show the event's kind."""
        return badge(event.kind, event.get_kind_display())

    @admin.display(description="run")
    def by_run(self, event: AlertEvent) -> str:
        """Link to the run that caused the event."""
        return link(event.run)

    @admin.display(description="detail")
    def details(self, event: AlertEvent) -> str:
        """Show the event's details, such as what changed or why."""
        return facts(event.detail) or NOTHING


class AlertEventInline(_Step, admin.TabularInline[AlertEvent, Alert]):
    """An alert's history, shown on its page."""

    model = AlertEvent
    verbose_name_plural = "history"
    extra = 0
    can_delete = False
    fields = ["at", "step", "actor", "by_run", "details"]
    readonly_fields = ["step", "by_run", "details"]
    ordering = ["seq"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: events cannot be added to the history manually."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: events in the history cannot be changed."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        """Fetch the events' runs in the same query."""
        return super().get_queryset(request).select_related("run")


@admin.register(AlertEvent)
class AlertEventAdmin(_Step, ReadOnlyAdmin[AlertEvent]):
    """The event feed: alert events and entry rejections, newest first."""

    list_display = ["at", "seq", "step", "actor_name", "about", "details"]
    list_filter = ["kind", "workspace"]
    list_select_related = ["alert"]
    search_fields = ["alert__user__user_id", "user__user_id", "actor"]
    search_help_text = "Search by user id or actor."
    ordering = ["-pk"]  # newest row first: sorting a million rows by time would be slow
    when_empty = "No alerts have been opened and no entries have been rejected yet."
    fields = [
        *("seq", "about", "user_link", "step", "at", "actor", "by_run", "details", "rejected"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        """Defer the `entries` column, which lists don't show."""
        return super().get_queryset(request).defer("entries")

    @admin.display(description="actor", ordering="actor")
    def actor_name(self, event: AlertEvent) -> str:
        """Show who caused the event."""
        return inline(event.actor)

    @admin.display(description="about")
    def about(self, event: AlertEvent) -> str:
        """Link to the alert or the rejected entries that the event is about."""
        if event.alert is None:
            return link_to_rejected(event)
        return link(event.alert, shortened(str(event.alert)))

    @admin.display(description="user")
    def user_link(self, event: AlertEvent) -> str:
        """Link to the user."""
        return link(event.person)

    @admin.display(description="rejected entries")
    def rejected(self, event: AlertEvent) -> str:
        """List the rejected entries with the reasons they were rejected."""
        named = rejections.named_by([event]).get(event.pk, ())
        pages = entry_pages(event.person, [one.seq for one in named])
        rows = [
            format_html('<a href="{}">#{}</a> {}', pages[one.seq], one.seq, inline(one.reason))
            for one in named
        ]
        more = len(event.entries) - len(named)
        return lines([*rows, f"{more} more"] if more else rows)


@admin.register(EventCounter)
class EventCounterAdmin(ReadOnlyAdmin[EventCounter]):
    """Each workspace's newest event number."""

    list_display = ["workspace_name", "last_seq"]
    list_display_links = ["last_seq"]
    list_select_related = ["workspace"]
    search_fields = ["workspace__name"]
    search_help_text = "Search by workspace."
    when_empty = "No alert has been opened yet."
    fields = ["workspace_name", "last_seq"]

    @admin.display(description="workspace", ordering="workspace__name")
    def workspace_name(self, counter: EventCounter) -> str:
        """Link to the workspace."""
        return link(counter.workspace)
