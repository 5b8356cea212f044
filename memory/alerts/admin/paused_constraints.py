"""Feedback on alerts, and constraints that are paused because they are too noisy."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.alerts import paused_constraints
from memory.alerts.models.alerts import PausedConstraint
from memory.kernel.admin.actions import Menu, note_of, report, staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column
from memory.kernel.admin.display import inline, rule_of
from memory.kernel.admin.pauses import PausedAdmin, ResumedFilter


@admin.register(PausedConstraint)
class PausedConstraintAdmin(PausedAdmin[PausedConstraint]):
    """Constraints paused for being too noisy, with the reasons and the people who resumed them."""

    labels = {"resumed_because": "reason for resuming"}

    list_display = ["name", "state", "user", "why", "paused_at", "resumed_at"]
    list_display_links = ["name"]
    list_filter = [ResumedFilter]
    search_fields = ["user__user_id", "constraint"]
    search_help_text = "Search by user id or constraint."
    menus = [Menu("Resume", ["resume"], note="Reason (kept in the history)")]
    when_empty = "No constraint has been paused for being too noisy yet."
    fieldsets = [
        section(None, "name", "state", "user", "reason"),
        section(
            "Times", ("paused_at", "paused_by"), ("resumed_at", "resumed_by"), "resumed_because"
        ),
        section("Identity", "id", "source_hash", collapsed=True),
    ]

    @content_column("constraint", "constraint")
    def name(self, paused: PausedConstraint) -> str:
        return inline(rule_of(paused.constraint))

    @admin.action(description="Resume the selected constraints", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[PausedConstraint]) -> None:
        chosen, done = list(queryset), 0
        for paused in chosen:
            try:
                paused_constraints.resume(
                    paused, actor=staff_of(request), reason=note_of(request, "resumed by staff")
                )
            except paused_constraints.NotPaused:
                continue
            done += 1
        report(request, "constraint", done, len(chosen), "resumed", "already resumed")
