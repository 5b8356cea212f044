"""Admin screen for lanes, each of which holds one user's pending work of one kind."""

from collections.abc import Collection

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest

from memory.admin.base import ReadOnlyAdmin
from memory.admin.display import NOTHING, badge, counted, inline, preformatted, shortened
from memory.admin.filters import PresenceFilter
from memory.admin.links import link
from memory.models import Lane
from memory.work import lanes


class DueFilter(PresenceFilter):
    """A list filter that separates lanes with pending work from idle ones."""

    title = "state"
    parameter_name = "due"
    field, filled, empty = "due_at", "work pending", "nothing pending"


@admin.register(Lane)
class LaneAdmin(ReadOnlyAdmin[Lane]):
    """Lanes, with each lane's waiting time, the worker that holds its work, and its last error."""

    list_display = [
        "work",
        "user_link",
        "standing",
        "due_at",
        "run_after",
        "attempts",
        "trouble",
    ]
    list_display_links = ["work"]
    list_filter = ["name", DueFilter, "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    search_help_text = "Search by user id."
    ordering = [F("due_at").asc(nulls_last=True), "id"]
    actions = ["try_now"]
    when_empty = "There are no users yet."
    fieldsets = [
        (
            None,
            {
                "fields": [
                    *("user_link", "work", "standing"),
                    *("due_at", "waiting", "waiting_since", "done_to"),
                ]
            },
        ),
        ("Attempts", {"fields": ["attempts", "run_after", "error"]}),
        (
            "Worker",
            {"fields": ["lease_owner", "lease_expires_at", "token", "hinted_at"]},
        ),
    ]

    def actions_for(self, row: Lane) -> Collection[str]:
        """Offer to retry the lane's work if any is pending."""
        return ["try_now"] if row.due_at else []

    @admin.display(description="work", ordering="name")
    def work(self, lane: Lane) -> str:
        """Show the kind of work."""
        return lane.get_name_display()

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, lane: Lane) -> str:
        """Link to the user."""
        return link(lane.user)

    @admin.display(description="state")
    def standing(self, lane: Lane) -> str:
        """Show whether the lane's work is waiting, in progress or failing."""
        if lane.lease_owner:
            return badge("running", "in progress")
        if lane.due_at is None:
            return badge("idle")
        return badge("failing") if lane.attempts else badge("waiting")

    @admin.display(description="processed up to")
    def done_to(self, lane: Lane) -> str:
        """Show the entry up to which the lane's work is done."""
        return f"#{lane.cursor_seq}"

    @admin.display(description="last error")
    def trouble(self, lane: Lane) -> str:
        """Show the beginning of the last error."""
        return inline(shortened(lane.last_error)) if lane.last_error else NOTHING

    @admin.display(description="last error")
    def error(self, lane: Lane) -> str:
        """Show the last error."""
        return preformatted(lane.last_error)

    @admin.action(description="Retry the selected work now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Lane]) -> None:
        """Make pending work due now, even after failures; the dispatcher then sends a hint."""
        chosen = queryset.count()
        number = lanes.hurry(queryset)
        if number:
            messages.success(request, f"{counted(number, 'lane')} will be retried now.")
        if number < chosen:
            messages.warning(
                request, f"{counted(chosen - number, 'lane')} skipped: nothing is pending."
            )
