"""Merges: who turned out to be whom, and how far the entries have come."""

from django.contrib import admin

from memory.admin.base import PresenceFilter, ReadOnlyAdmin, WorkAdmin, link
from memory.admin.display import badge, inline, lines
from memory.models import CopiedEntries, Merge


class StateFilter(PresenceFilter):
    """Those of which entries are still to be copied, or none."""

    title = "state"
    parameter_name = "state"
    field, filled, empty = "due_at", "not done yet", "done"


@admin.register(Merge)
class MergeAdmin(WorkAdmin[Merge]):
    """Users who were merged into others."""

    list_display = ["created_at", "merged_link", "user_link", "how_far", "progress", "by"]
    list_filter = [
        StateFilter,
        ("created_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user", "merged"]
    search_fields = ["user__user_id", "merged__user_id", "by"]
    search_help_text = "By either user id, or who did it."
    ordering = ["-created_at", "-id"]
    when_empty = "Nobody has been merged yet."
    fieldsets = [
        (
            None,
            {"fields": ["merged_link", "user_link", "how_far", "progress", "constraints", "by"]},
        ),
        (
            "Work on it",
            {
                "classes": ["collapse"],
                "fields": ["created_at", "finished_at", "attempts", "run_after", "error"],
            },
        ),
    ]

    @admin.display(description="merged user", ordering="merged__user_id")
    def merged_link(self, row: Merge) -> str:
        """Lead to the user of whom nothing is told any more."""
        return link(row.merged)

    @admin.display(description="into", ordering="user__user_id")
    def user_link(self, row: Merge) -> str:
        """Lead to the user who it is."""
        return link(row.user)

    @admin.display(description="state")
    def how_far(self, row: Merge) -> str:
        """Say whether all is copied, and if not, whether it fails."""
        if row.due_at is None:
            return badge("done")
        return badge("failing") if row.last_error else badge("working", "under way")

    @admin.display(description="entries")
    def progress(self, row: Merge) -> str:
        """Count what was looked at, and what of it was copied."""
        return f"{row.cursor_seq} of {row.last_seq}, {row.copied} copied"

    @admin.display(description="constraints left behind")
    def constraints(self, row: Merge) -> str:
        """Name the merged user's own constraints, which the other does not have."""
        return lines(inline(path) for path in row.left_behind) or "none"


@admin.register(CopiedEntries)
class CopiedEntriesAdmin(ReadOnlyAdmin[CopiedEntries]):
    """Which entries became which."""

    list_display = ["from_seq", "seq", "number", "merge_link"]
    list_filter = ["merge__user__workspace"]
    list_select_related = ["merge__user", "merge__merged"]
    search_fields = ["merge__user__user_id", "merge__merged__user_id"]
    search_help_text = "By either user id."
    ordering = ["-merge", "from_seq"]
    when_empty = "Nobody has been merged yet."
    fields = ["merge_link", "from_seq", "seq", "number"]

    @admin.display(description="merge", ordering="merge")
    def merge_link(self, row: CopiedEntries) -> str:
        """Lead to the merge."""
        return link(row.merge)
