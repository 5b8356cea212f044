"""Feedback on alerts, and constraints that are paused because they are too noisy."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.admin.actions import NotedActionForm, note_of, staff_of
from memory.admin.base import PausedAdmin, ReadOnlyAdmin
from memory.admin.display import NOTHING, badge, counted, inline, preformatted, shortened
from memory.admin.filters import PresenceFilter
from memory.admin.links import link
from memory.alerting import paused_constraints
from memory.models import AlertFeedback, PausedConstraint


class ResumedFilter(PresenceFilter):
    """A list filter that separates constraints that are still paused from resumed ones."""

    title = "state"
    parameter_name = "resumed"
    field, filled, empty = "resumed_at", "resumed", "paused"


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
        (None, {"fields": ["name", "standing", "user_link", "reason"]}),
        (
            "Times",
            {"fields": [("paused_at", "paused_by"), ("resumed_at", "resumed_by"), "because"]},
        ),
        ("Identity", {"classes": ["collapse"], "fields": ["id", "source_hash"]}),
    ]

    @admin.display(description="constraint", ordering="constraint")
    def name(self, paused: PausedConstraint) -> str:
        """Show the constraint's name."""
        return inline(paused.constraint.removeprefix("constraints/").removesuffix(".py"))

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, paused: PausedConstraint) -> str:
        """Link to the user."""
        return link(paused.user)

    @admin.display(description="reason for resuming")
    def because(self, paused: PausedConstraint) -> str:
        """Show why the constraint was resumed."""
        return preformatted(paused.resumed_because)

    @admin.action(description="Resume the selected constraints", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[PausedConstraint]) -> None:
        """Resume the constraints and run them."""
        chosen, done = list(queryset), 0
        for paused in chosen:
            try:
                paused_constraints.resume(
                    paused, actor=staff_of(request), reason=note_of(request, "resumed by staff")
                )
            except paused_constraints.NotPaused:
                continue
            done += 1
        if done:
            messages.success(request, f"{counted(done, 'constraint')} resumed.")
        if done < len(chosen):
            left = counted(len(chosen) - done, "constraint")
            messages.warning(request, f"{left} skipped: already resumed.")


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

    @admin.display(description="verdict", ordering="verdict")
    def verdict_badge(self, given: AlertFeedback) -> str:
        """Show the verdict on the alert."""
        return badge(given.verdict, given.get_verdict_display())

    @admin.display(description="alert")
    def alert_link(self, given: AlertFeedback) -> str:
        """Link to the alert."""
        return link(given.alert, shortened(str(given.alert)))

    @admin.display(description="by", ordering="actor")
    def actor_name(self, given: AlertFeedback) -> str:
        """Show the person or API key that gave the feedback."""
        return inline(given.actor)

    @admin.display(description="note")
    def remark(self, given: AlertFeedback) -> str:
        """Show the note given with the feedback."""
        return inline(shortened(given.note)) if given.note else NOTHING
