"""User merges, and how far their entries have been copied."""

from django.contrib import admin

from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import inline, lines
from memory.kernel.admin.tables import WorkAdmin
from memory.log.models.merges import Merge


@admin.register(Merge)
class MergeAdmin(WorkAdmin[Merge]):
    """User merges; the merged user's log accepts no more entries."""

    labels = {"user": "into", "merged": "merged user"}

    list_display = ["created_at", "merged", "user", "state", "progress", "by"]
    search_fields = ["user__user_id", "merged__user_id", "by"]
    search_help_text = "Search by either user's id or by requester."
    when_empty = "No users have been merged yet."
    fieldsets = [
        section(None, "merged", "user", "state", "progress", "constraints", "by"),
        section("Time", "created_at", "finished_at", collapsed=True),
    ]

    @plain_column("entries")
    def progress(self, row: Merge) -> str:
        skipped = f", {len(row.skipped)} skipped" if row.skipped else ""
        return f"{row.cursor_seq} of {row.last_seq}, {row.copied} copied{skipped}"

    @content_column("constraints not copied")
    def constraints(self, row: Merge) -> str:
        return lines(inline(path) for path in row.left_behind) or "none"
