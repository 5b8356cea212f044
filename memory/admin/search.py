"""The search in the header of every page: people, alerts, records, entries and runs."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from memory.alerts.admin.links import link_to_alert
from memory.alerts.models.alerts import Alert
from memory.kernel.admin.display import visible
from memory.kernel.admin.links import link, list_url
from memory.kernel.admin.rows import may_see, rows_for
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import audit
from memory.kernel.staff.access import sees_content
from memory.kernel.staff.models import AuditKind
from memory.log.admin.links import link_to_entry
from memory.log.models.entries import LogEntry
from memory.versions.models.checkpoints import RecordLocation
from memory.versions.models.runs import Run

# Maximum number of rows shown of each kind; its list shows them all.
MAX_FOUND = 10
# Maximum number of alerts whose words are compared with a query that finds nothing.
MAX_READ = 500
MAX_QUERY = 200


def _of_user(show: Callable[[Any], SafeString | str]) -> Callable[[Any], SafeString]:
    return lambda row: format_html("{} of {}", show(row), link(row.user))


# How the rows of each kind are shown, in the order of the page.
_SHOWN: Mapping[type[Model], Callable[[Any], SafeString | str]] = {
    MemoryUser: link,
    Alert: _of_user(link_to_alert),
    RecordLocation: _of_user(link),
    LogEntry: _of_user(link_to_entry),
    Run: _of_user(link),
}


def search(request: HttpRequest) -> HttpResponse:
    """Return the page of what was found; each list searches as it does by itself."""
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    found = list(_find_results(request, query)) if query else []
    context = {
        **admin.site.each_context(request),
        "title": f"Search: {visible(query)}" if query else "Search",
        "searched": query,  # for the box in the header
        "query": visible(query),
        "found": [group for group in found if group["rows"]],
        "empty": [group for group in found if not group["rows"]],
        "alike": [] if any(group["rows"] for group in found) else _find_alike(request, query),
        "without_content": not sees_content(request.user),
        "unseen": [
            model._meta.verbose_name_plural for model in _SHOWN if not may_see(request, model)
        ],
    }
    return TemplateResponse(request, "admin/memory/search.html", context)


def _find_alike(request: HttpRequest, query: str) -> list[str]:
    """Return words of the newest alerts that are spelled almost like the query."""
    if not query or not sees_content(request.user):
        return []
    rows = rows_for(request, Alert).order_by("-opened_at")[:MAX_READ]
    messages = dict(rows.values_list("pk", "message"))
    words = {
        word for message in messages.values() for word in re.findall(r"\w{4,}", message.lower())
    }
    alike = difflib.get_close_matches(query.lower(), sorted(words), cutoff=0.8)
    if alike:
        shown = Alert.objects.filter(pk__in=messages)
        audit.note(request.user, AuditKind.VIEW, audit.subject_of(shown), "search")
    return alike


def _find_results(request: HttpRequest, query: str) -> Iterator[Mapping[str, Any]]:
    for model, show in _SHOWN.items():
        if not may_see(request, model):
            continue
        screen: Any = admin.site.get_model_admin(model)
        everything = screen.get_queryset(request)
        matching, _ = screen.get_search_results(request, everything, query)
        # The search may join other tables, which would repeat rows.
        rows = everything.filter(pk__in=matching.order_by().values("pk"))
        related = "workspace" if model is MemoryUser else "user__workspace"
        rows = rows.select_related(related).order_by(*screen.ordering)
        matches = list(rows[: MAX_FOUND + 1])
        if matches:
            shown = model._default_manager.filter(pk__in=[row.pk for row in matches[:MAX_FOUND]])
            audit.note(request.user, AuditKind.VIEW, audit.subject_of(shown), "search")
        yield {
            "name": capfirst(str(model._meta.verbose_name_plural)),
            "searched": screen.search_help_text.removeprefix("Search by ").removesuffix("."),
            "rows": [show(row) for row in matches[:MAX_FOUND]],
            "url": list_url(model, q=query) if len(matches) > MAX_FOUND else "",
        }
