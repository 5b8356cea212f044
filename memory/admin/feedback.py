"""Feedback on alerts, and constraints that are paused because they are too noisy."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.admin.actions import NotedActionForm, note_of, report, staff_of
from memory.admin.base import PausedAdmin, ReadOnlyAdmin, section
from memory.admin.columns import badge_column, beginning, column
from memory.admin.display import inline, preformatted, rule_of, shortened
from memory.admin.filters import ResumedFilter
from memory.admin.links import link
from memory.alerts import paused_constraints
from memory.alerts.models.alerts import AlertFeedback, PausedConstraint


@admin.register(PausedConstraint)
class PausedConstraintAdmin(PausedAdmin[PausedConstraint]):
    """Constraints paused for being too noisy, with the reasons and the people who resumed them."""

    list_display = ["name", "standing", "user_link", "why", "paused_at", "resumed_at"]
    list_display_links = ["name"]
    list_filter = [ResumedFilter, "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id", "constraint"]
    search_help_text = "Search by user id or constraint."
    action_form = NotedActionForm
    action_note = "Reason (kept in the history)"
    when_empty = "No constraint has been paused for being too noisy yet."
    fieldsets = [
        section(None, "name", "standing", "user_link", "reason"),
        section("Times", ("paused_at", "paused_by"), ("resumed_at", "resumed_by"), "because"),
        section("Identity", "id", "source_hash", collapsed=True),
    ]

    user_link = column("user", link, "user", "user__user_id")
    because = column("resumed_because", preformatted, "reason for resuming")

    @admin.display(description="constraint", ordering="constraint")
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


@admin.register(AlertFeedback)
class AlertFeedbackAdmin(ReadOnlyAdmin[AlertFeedback]):
    """Feedback on alerts, from the product and staff."""

    list_display = ["at", "verdict_badge", "judge", "alert_link", "actor_name", "remark"]
    list_filter = ["verdict", "judge", "alert__user__workspace"]
    list_select_related = ["alert"]
    search_fields = ["alert__user__user_id", "alert__constraint", "actor"]
    search_help_text = "Search by user id, constraint or actor."
    ordering = ["-at", "id"]
    when_empty = "There is no feedback on alerts yet."
    fields = ["alert_link", "verdict_badge", "judge", "actor_name", "at", "remark"]

    verdict_badge = badge_column("verdict", "verdict", "verdict")
    actor_name = column("actor", inline, "by", "actor")
    remark = column("note", beginning, "note")

    @admin.display(description="alert")
    def alert_link(self, given: AlertFeedback) -> str:
        return link(given.alert, shortened(str(given.alert)))
