"""User merges, and how far their entries have been copied."""

from django.contrib import admin

from memory.admin.base import WorkAdmin, section
from memory.admin.columns import content_column, plain_column
from memory.admin.display import badge, inline, lines
from memory.admin.filters import UnderWayFilter
from memory.admin.links import link
from memory.log.models.merges import Merge


@admin.register(Merge)
class MergeAdmin(WorkAdmin[Merge]):
    """User merges."""

    labels = {"user": "into"}

    list_display = ["created_at", "merged_link", "user", "how_far", "progress", "by"]
    list_filter = [
        UnderWayFilter,
        "created_at",
        "user__workspace",
    ]
    list_select_related = ["user", "merged"]
    search_fields = ["user__user_id", "merged__user_id", "by"]
    search_help_text = "Search by either user's id or by requester."
    ordering = ["-created_at", "-id"]
    when_empty = "No users have been merged yet."
    fieldsets = [
        section(None, "merged_link", "user", "how_far", "progress", "constraints", "by"),
        section(
            "Work status",
            *("created_at", "finished_at", "attempts", "run_after", "last_error"),
            collapsed=True,
        ),
    ]

    @plain_column("merged user", "merged__user_id")
    def merged_link(self, row: Merge) -> str:
        """Link to the merged user, whose log accepts no more entries."""
        return link(row.merged)

    @plain_column("state")
    def how_far(self, row: Merge) -> str:
        if row.due_at is None:
            return badge("done")
        return badge("failing") if row.last_error else badge("working", "under way")

    @plain_column("entries")
    def progress(self, row: Merge) -> str:
        return f"{row.cursor_seq} of {row.last_seq}, {row.copied} copied"

    @content_column("constraints not copied")
    def constraints(self, row: Merge) -> str:
        return lines(inline(path) for path in row.left_behind) or "none"
