"""Uploaded documents, and the action that redacts them."""

from collections.abc import Collection
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from memory.kernel.admin.actions import ask, confirmed_reason, staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import NOTHING, badge, counted, inline
from memory.kernel.admin.links import link, link_to_list
from memory.kernel.admin.tables import WorkAdmin
from memory.log.admin.links import links_to_entries
from memory.log.models.documents import Document
from memory.log.models.entries import LogEntry
from memory.privacy import redaction
from memory.privacy.admin.redactions import what_goes

# Maximum number of documents that can be redacted at once; the confirmation page lists what goes.
MAX_CHOSEN = 20
# Maximum number of a document's entries that its page shows.
MAX_SHOWN = 20


@admin.register(Document)
class DocumentAdmin(WorkAdmin[Document]):
    """Uploaded documents, and the entries that hold their text."""

    labels = {"by": "uploaded by", "sha256": "SHA-256"}

    list_display = ["created_at", "name", "user", "state", "media_type", "bytes", "pages"]
    list_display_links = ["created_at", "name"]
    search_fields = ["user__user_id", "=id", "name"]
    search_help_text = "Search by user id, document id or name."
    when_empty = "No document has been uploaded yet."
    actions = ["try_now", "redact"]
    asking = ["redact"]
    dangerous = ["redact"]
    fieldsets = [
        section(None, "user", "name", "state", "failure", "media_type", "bytes", "original"),
        section("Text", "pages", "characters", "all_entries", "entries"),
        section("Origin and time", "by", "occurred_at", "created_at", "finished_at"),
        section("Identity", "id", "sha256", collapsed=True),
    ]

    def actions_for(self, row: Document) -> Collection[str]:
        return ["redact", *super().actions_for(row)] if row.due_at is None else self.actions

    def has_redact_permission(self, request: HttpRequest) -> bool:
        """Return whether the staff member may redact, which entries need as well."""
        return request.user.has_perm("memory.change_logentry")

    @plain_column("state", "due_at")
    def state(self, row: Document) -> str:
        return badge("failed") if row.state == "failed" else super().state(row)

    @content_column("error")
    def failure(self, row: Document) -> str:
        return inline(f"{row.error}: {row.detail}") if row.error else NOTHING

    @plain_column("size", "size")
    def bytes(self, row: Document) -> str:
        return f"{row.size:,} bytes"

    @plain_column("original")
    def original(self, row: Document) -> str:
        return "not stored" if row.file is None else "stored"

    @plain_column("all entries")
    def all_entries(self, row: Document) -> str:
        if row.first_seq is None or row.last_seq is None:
            return NOTHING
        number = counted(row.last_seq - row.first_seq + 1, "entry")
        span = {"seq__gte": row.first_seq, "seq__lte": row.last_seq}
        return link_to_list(LogEntry, number, user__id__exact=row.user_id, **span)

    @content_column("first entries")
    def entries(self, row: Document) -> str:
        if row.first_seq is None or row.last_seq is None:
            return NOTHING
        last = min(row.last_seq, row.first_seq + MAX_SHOWN - 1)
        return links_to_entries(row.user, range(row.first_seq, last + 1))

    @admin.action(description="Redact the selected documents…", permissions=["redact"])
    def redact(self, request: HttpRequest, queryset: QuerySet[Document]) -> TemplateResponse | None:
        """Show what the redaction will remove and ask for a reason; once confirmed, redact."""
        rows = list(queryset.select_related("user__workspace")[: MAX_CHOSEN + 1])
        if len(rows) > MAX_CHOSEN:
            messages.error(request, f"Nothing was done: select at most {MAX_CHOSEN} documents.")
            return None
        if not (reason := confirmed_reason(request)):
            return ask(
                request,
                "redact",
                rows,
                Document,
                title="Redact documents",
                verb="Redact",
                for_good=True,
                people=[one for row in rows for one in _what_goes(row)],
            )
        for row in rows:
            entry = redaction.redact_document(row, by=staff_of(request), reason=reason)
            what = "the document and its text" if entry else "the document, which had no text here"
            messages.success(request, format_html("Redacted {} of {}.", what, link(row.user)))
        return None


def _what_goes(row: Document) -> Any:
    if row.first_seq is None or row.last_seq is None:
        return [{"user": link(row.user), "documents": link(row)}]
    return what_goes(row.user, list(range(row.first_seq, row.last_seq + 1)))
