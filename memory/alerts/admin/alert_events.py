"""Admin screens for alert events: a single alert's history and the whole feed."""

from collections.abc import Mapping

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from memory.alerts import entry_events
from memory.alerts.admin.links import link_to_entries_of
from memory.alerts.models.alerts import Alert, AlertEvent
from memory.kernel.admin.base import ReadOnlyAdmin, ReadOnlyInline
from memory.kernel.admin.columns import column, content_column
from memory.kernel.admin.display import NOTHING, badge, facts, inline, lines, shortened
from memory.kernel.admin.links import MAX_LINKS, link
from memory.log.admin.links import entry_pages
from memory.versions.models.runs import Run


class _Step:
    """Columns shared by the event list and the history on an alert's page."""

    labels: Mapping[str, str] = {"kind": "step"}

    @content_column("detail")
    def details(self, event: AlertEvent) -> str:
        return facts(event.detail) or NOTHING


class AlertEventInline(_Step, ReadOnlyInline[AlertEvent, Alert]):
    """An alert's history, shown on its page."""

    model = AlertEvent
    verbose_name_plural = "history"
    fields = ["at", "kind", "actor", "run", "details"]
    readonly_fields = ["kind", "run", "details"]
    ordering = ["seq"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        return super().get_queryset(request).select_related("run")


@admin.register(AlertEvent)
class AlertEventAdmin(_Step, ReadOnlyAdmin[AlertEvent]):
    """The event feed: events about alerts and entries, newest first."""

    list_display = ["at", "seq", "kind", "actor", "about", "details"]
    list_filter = ["kind", "workspace"]
    list_select_related = ["alert"]
    large = ["detail"]
    search_fields = ["alert__user__user_id", "user__user_id", "actor"]
    search_help_text = "Search by user id or actor."
    ordering = ["-pk"]  # newest row first: sorting a million rows by time would be slow
    when_empty = "No alerts have been opened and no entries have been rejected yet."
    fields = [
        *("seq", "about", "user_link", "kind", "at", "actor", "run", "details", "named_entries"),
    ]

    user_link = column("person", link, "user", plain=True)

    @content_column("about")
    def about(self, event: AlertEvent) -> str:
        if event.alert is None:
            return link_to_entries_of(event)
        return link(event.alert, shortened(str(event.alert)))

    @content_column("entries")
    def named_entries(self, event: AlertEvent) -> str:
        named = entry_events.named_by([event]).get(event.pk, ())
        pages = entry_pages(event.person, [one.seq for one in named])
        rows = [
            format_html('<a href="{}">#{}</a> {}', pages[one.seq], one.seq, inline(_why(one)))
            for one in named
        ]
        more = len(event.entries) - len(named)
        return lines([*rows, f"{more} more"] if more else rows)


def show_events(run: Run) -> str:
    """List what a run's findings did to alerts and entries."""
    events = AlertEvent.objects.filter(run=run).select_related("alert").order_by("seq")
    return lines(
        format_html(
            "{} {}",
            badge(event.kind, event.get_kind_display()),
            link(event.alert, shortened(str(event.alert)))
            if event.alert
            else link_to_entries_of(event),
        )
        for event in events[:MAX_LINKS]
    )


def _why(named: entry_events.Named) -> str:
    """Return why an entry was rejected, or which of its fields have values set aside."""
    if isinstance(named, entry_events.Rejected):
        return named.reason
    return f"set aside: {', '.join(named.fields)}"
