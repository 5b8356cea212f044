"""The log."""

from django.contrib import admin

from memory import log
from memory.admin.base import (
    NOTHING,
    ReadOnlyAdmin,
    link,
    links_to_entries,
    preformatted,
    pretty,
    summary,
)
from memory.models import LogEntry


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    """What was said and told, line by line, and what became of it."""

    list_display = ["seq", "user_link", "kind", "says", "occurred_at", "recorded_at"]
    list_display_links = ["seq", "says"]
    list_filter = ["kind", "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    ordering = ["-recorded_at", "-seq"]
    fields = [
        "user_link",
        "seq",
        "kind",
        "outcome",
        "text",
        "record",
        "role",
        "speaker",
        "agent_id",
        "session_id",
        "details",
        "source",
        "derived",
        "occurred_at",
        "recorded_at",
        "redacted_at",
        "id",
        "idempotency_key",
        "chain",
    ]

    def lookup_allowed(self, lookup: str, value: str, *args: object) -> bool:
        """Let links name one entry by its number."""
        return lookup == "seq" or super().lookup_allowed(lookup, value, *args)  # type: ignore[arg-type]

    @admin.display(description="user")
    def user_link(self, entry: LogEntry) -> str:
        """Lead to the user."""
        return link(entry.user)

    @admin.display(description="says")
    def says(self, entry: LogEntry) -> str:
        """Show the beginning."""
        return summary(entry)

    @admin.display(description="content")
    def text(self, entry: LogEntry) -> str:
        """Show the text."""
        return preformatted(entry.content or "")

    @admin.display(description="typed record")
    def record(self, entry: LogEntry) -> str:
        """Show the record."""
        return pretty(entry.data)

    @admin.display(description="metadata")
    def details(self, entry: LogEntry) -> str:
        """Show the metadata."""
        return pretty(entry.metadata)

    @admin.display(description="derived from")
    def derived(self, entry: LogEntry) -> str:
        """Lead to the entries that this one was made from."""
        return links_to_entries(entry.user, entry.derived_from)

    @admin.display(description="what became of it")
    def outcome(self, entry: LogEntry) -> str:
        """Lead to the outcome."""
        outcome = log.outcomes(entry.user, [entry.seq]).get(entry.seq)
        if outcome is None:
            return "pending"
        return link(outcome, f"{outcome.outcome} {outcome.reason}".strip())

    @admin.display(description="hash")
    def chain(self, entry: LogEntry) -> str:
        """Show the entry's hash, which the next one includes."""
        return bytes(entry.hash).hex() if entry.hash else NOTHING
