"""Admin screen for lanes, each of which holds one user's pending work of one kind."""

from django.contrib import admin
from django.db.models import F, QuerySet

from memory.kernel.admin.base import section
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.tables import FailingFilter, UnderWayFilter, WorkAdmin
from memory.kernel.models.users import Lane
from memory.log import lanes


@admin.register(Lane)
class LaneAdmin(WorkAdmin[Lane]):
    """Lanes, with each lane's waiting time, the worker that holds its work, and its last error."""

    when_done = "idle"
    list_display = ["work", "user", "state", "due_at", "run_after", "attempts", "last_error"]
    list_display_links = ["work"]
    list_filter = ["name", UnderWayFilter, FailingFilter]
    ordering = [F("due_at").asc(nulls_last=True), "id"]
    when_empty = "There are no users yet."
    fieldsets = [
        section(None, "user", "work", "state", "due_at", "waiting", "waiting_since", "done_to"),
    ]

    def retry(self, rows: QuerySet[Lane]) -> int:
        """Make pending work due now, even if it waits for more entries."""
        return lanes.hurry(rows)

    @plain_column("work", "name")
    def work(self, lane: Lane) -> str:
        return lane.get_name_display()

    @plain_column("processed up to")
    def done_to(self, lane: Lane) -> str:
        return f"#{lane.cursor_seq}"
