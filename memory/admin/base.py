"""What the screens share: rows that nobody edits, links, and readable JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.models import LogEntry, MemoryUser

Row = TypeVar("Row", bound=models.Model)

NOTHING = "–"


class ReadOnlyAdmin(admin.ModelAdmin[Row]):
    """A screen of rows that only the server writes."""

    list_per_page = 50
    show_full_result_count = False
    actions: Sequence[Any] = []

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes a row by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes a row by hand: see erasure."""
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Who may change rows of this kind may use the actions of their screen."""
        name = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(name)


def link(row: models.Model | None, text: str | None = None) -> SafeString | str:
    """Return a link to the row's page."""
    if row is None:
        return NOTHING
    return format_html('<a href="{}">{}</a>', _page(row), text or str(row))


def link_to_list(model: type[models.Model], text: str, **filters: Any) -> SafeString:
    """Return a link to the list of the model's rows that match the filters."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return format_html('<a href="{}?{}">{}</a>', url, urlencode(filters), text)


def links_to_entries(user: MemoryUser, seqs: Iterable[int]) -> SafeString | str:
    """Return links to these entries of the user's log, with the beginning of what they say."""
    entries = LogEntry.objects.filter(user=user, seq__in=list(seqs)).order_by("seq")
    rows = [(_page(entry), entry.seq, entry.kind, summary(entry)) for entry in entries]
    if not rows:
        return NOTHING
    return format_html_join("", '<div><a href="{}">#{}</a> {}: {}</div>', rows)


def summary(entry: LogEntry, length: int = 120) -> str:
    """Return the beginning of what an entry says."""
    if entry.redacted_at is not None:
        return "(redacted)"
    text = entry.content or ""
    if entry.data is not None:
        text = f"{entry.data.get('type', '')} {json.dumps(entry.data.get('data', {}), ensure_ascii=False)}"
    return text if len(text) <= length else text[: length - 1] + "…"


def pretty(value: Any) -> SafeString | str:
    """Return JSON indented, in a block that keeps its lines."""
    if value in (None, "", {}, []):
        return NOTHING
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False))


def preformatted(text: str) -> SafeString | str:
    """Return text in a block that keeps its lines."""
    if not text:
        return NOTHING
    return format_html(
        '<pre style="margin:0;white-space:pre-wrap;overflow-wrap:anywhere">{}</pre>', text
    )


def _page(row: models.Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
