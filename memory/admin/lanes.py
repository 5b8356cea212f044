"""Admin screen for lanes, each of which holds one user's pending work of one kind."""

from collections.abc import Collection

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest

from memory.admin.actions import report
from memory.admin.base import ReadOnlyAdmin, section
from memory.admin.columns import plain_column
from memory.admin.display import badge
from memory.admin.filters import presence_filter
from memory.kernel.models.users import Lane
from memory.log import lanes


@admin.register(Lane)
class LaneAdmin(ReadOnlyAdmin[Lane]):
    """Lanes, with each lane's waiting time, the worker that holds its work, and its last error."""

    list_display = [
        "work",
        "user",
        "standing",
        "due_at",
        "run_after",
        "attempts",
        "last_error",
    ]
    list_display_links = ["work"]
    list_filter = [
        "name",
        presence_filter("due", "due_at", filled="work pending", empty="nothing pending"),
        "user__workspace",
    ]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    search_help_text = "Search by user id."
    ordering = [F("due_at").asc(nulls_last=True), "id"]
    actions = ["try_now"]
    when_empty = "There are no users yet."
    fieldsets = [
        section(None, "user", "work", "standing", "due_at", "waiting", "waiting_since", "done_to"),
        section("Attempts", "attempts", "run_after", "last_error"),
        section("Worker", "lease_owner", "lease_expires_at", "token", "hinted_at"),
    ]

    def actions_for(self, row: Lane) -> Collection[str]:
        return ["try_now"] if row.due_at else []

    @plain_column("work", "name")
    def work(self, lane: Lane) -> str:
        return lane.get_name_display()

    @plain_column("state")
    def standing(self, lane: Lane) -> str:
        if lane.lease_owner:
            return badge("running", "in progress")
        if lane.due_at is None:
            return badge("idle")
        return badge("failing") if lane.attempts else badge("waiting")

    @plain_column("processed up to")
    def done_to(self, lane: Lane) -> str:
        return f"#{lane.cursor_seq}"

    @admin.action(description="Retry the selected work now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Lane]) -> None:
        """Make pending work due now, even after failures; the dispatcher then sends a hint."""
        chosen = queryset.count()
        number = lanes.hurry(queryset)
        report(request, "lane", number, chosen, "will be retried now", "nothing is pending")
