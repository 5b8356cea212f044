"""Links to row pages and lists."""

from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.utils import quote
from django.db import models
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.admin import masking
from memory.admin.display import NOTHING, badge, inline, lines, shortened, summary
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome

Key: TypeAlias = int | str | UUID

_MAX_LINKS = 100
_MAX_PAGES = 1000


def list_url(model: type[models.Model], /, **filters: Any) -> str:
    """Return the URL of the model's list page with these filters."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{url}?{urlencode(filters)}" if filters else url


def page_url(row: models.Model) -> str:
    """Return the URL of the row's page."""
    return _page_url(type(row), row.pk)


def link(row: models.Model | None, text: str | None = None) -> SafeString | str:
    """Return a link to the row's page."""
    if row is None:
        return NOTHING
    return format_html('<a href="{}">{}</a>', page_url(row), inline(text or masking.name_of(row)))


def link_to_key(model: type[models.Model], key: Key | None, text: str) -> SafeString | str:
    """Return a link to the page of the row with this primary key."""
    if key is None:
        return inline(text)
    return format_html('<a href="{}">{}</a>', _page_url(model, key), inline(text))


def link_to_list(model: type[models.Model], text: str, **filters: Any) -> SafeString:
    """Return a link to the model's list page with these filters."""
    return format_html('<a href="{}">{}</a>', list_url(model, **filters), text)


def link_to_entries_of(event: AlertEvent) -> SafeString:
    """Return a link to the list of the user's entries of an event's kind, which shows why."""
    if event.kind == AlertEventKind.REJECTED:
        text, only = "rejected entries", {"outcome__exact": str(Outcome.REJECTED)}
    else:
        text, only = "entries with values set aside", {"set_aside": "yes"}
    return link_to_list(EntryOutcome, text, user__id__exact=event.user_id, **only)


def link_to_entry(entry: LogEntry) -> SafeString:
    """Return a link to the entry, followed by the beginning of its content."""
    return format_html(
        '<a href="{}">#{}</a> {} {}',
        page_url(entry),
        entry.seq,
        badge(entry.kind, entry.get_kind_display()),
        masking.content(inline(summary(entry))),
    )


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries in the user's log, each with the beginning of its content."""
    wanted = sorted(set(seqs))
    entries = LogEntry.objects.filter(user=user, seq__in=wanted[:_MAX_LINKS]).order_by("seq")
    rows: list[SafeString | str] = [link_to_entry(entry) for entry in entries]
    if len(wanted) > _MAX_LINKS:
        rows.append(f"… and {len(wanted) - _MAX_LINKS} more, up to #{wanted[-1]}")
    return lines(rows)


def entry_pages(user: MemoryUser, seqs: Iterable[int]) -> dict[int, str]:
    """Return the page URLs of these entries, keyed by number; at most a thousand are looked up."""
    wanted = sorted(set(seqs))[:_MAX_PAGES]
    entries = LogEntry.objects.filter(user=user, seq__in=wanted).order_by()
    found = entries.values_list("seq", "pk")
    return {seq: _page_url(LogEntry, pk) for seq, pk in found}


def links_to_alerts(alerts: QuerySet[Alert]) -> SafeString | str:
    """Return links to these alerts, newest first, each with its severity and state."""
    return lines(link_to_alert(alert) for alert in alerts.order_by("-opened_at")[:_MAX_LINKS])


def link_to_alert(alert: Alert) -> SafeString:
    """Return a link to the alert, with its severity and state."""
    return format_html(
        "{} {} {}",
        badge(alert.severity, alert.get_severity_display()),
        badge(alert.state, alert.get_state_display()),
        link(alert, None if masking.is_hidden() else shortened(alert.message)),
    )


def _page_url(model: type[models.Model], key: Key) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(key)])
