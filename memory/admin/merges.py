"""User merges, and how far their entries have been copied."""

from django.contrib import admin

from memory.admin.base import ReadOnlyAdmin, WorkAdmin, section
from memory.admin.columns import column
from memory.admin.display import badge, inline, lines
from memory.admin.filters import UnderWayFilter
from memory.admin.links import link
from memory.log.models.merges import CopiedEntries, Merge


@admin.register(Merge)
class MergeAdmin(WorkAdmin[Merge]):
    """User merges."""

    list_display = ["created_at", "merged_link", "user_link", "how_far", "progress", "by"]
    list_filter = [
        UnderWayFilter,
        ("created_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user", "merged"]
    search_fields = ["user__user_id", "merged__user_id", "by"]
    search_help_text = "Search by either user's id or by requester."
    ordering = ["-created_at", "-id"]
    when_empty = "No users have been merged yet."
    fieldsets = [
        section(None, "merged_link", "user_link", "how_far", "progress", "constraints", "by"),
        section(
            "Work status",
            *("created_at", "finished_at", "attempts", "run_after", "error"),
            collapsed=True,
        ),
    ]

    user_link = column("user", link, "into", "user__user_id")

    @admin.display(description="merged user", ordering="merged__user_id")
    def merged_link(self, row: Merge) -> str:
        """Link to the merged user, whose log accepts no more entries."""
        return link(row.merged)

    @admin.display(description="state")
    def how_far(self, row: Merge) -> str:
        if row.due_at is None:
            return badge("done")
        return badge("failing") if row.last_error else badge("working", "under way")

    @admin.display(description="entries")
    def progress(self, row: Merge) -> str:
        return f"{row.cursor_seq} of {row.last_seq}, {row.copied} copied"

    @admin.display(description="constraints not copied")
    def constraints(self, row: Merge) -> str:
        return lines(inline(path) for path in row.left_behind) or "none"


@admin.register(CopiedEntries)
class CopiedEntriesAdmin(ReadOnlyAdmin[CopiedEntries]):
    """The mapping from a merged user's entries to their copies."""

    list_display = ["from_seq", "seq", "number", "merge_link"]
    list_filter = ["merge__user__workspace"]
    list_select_related = ["merge__user", "merge__merged"]
    search_fields = ["merge__user__user_id", "merge__merged__user_id"]
    search_help_text = "Search by either user's id."
    ordering = ["-merge", "from_seq"]
    when_empty = "No users have been merged yet."
    fields = ["merge_link", "from_seq", "seq", "number"]

    merge_link = column("merge", link, "merge", "merge")
