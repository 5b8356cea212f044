"""Admin screens for alerts and their events."""

import datetime
from collections.abc import Callable, Collection
from contextlib import suppress

from django.contrib import admin, messages
from django.db.models import (
    BooleanField,
    Count,
    ExpressionWrapper,
    F,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from memory.alerts import alert_actions, feedback
from memory.alerts.admin.alert_events import AlertEventInline
from memory.alerts.admin.evidence import show_constraint, show_records
from memory.alerts.admin.links import link_to_alert
from memory.alerts.feedback import Precision, in_words
from memory.alerts.models.alerts import (
    BY_SEVERITY,
    BY_STATE,
    Alert,
    AlertFeedback,
    AlertKind,
    AlertState,
    Judge,
    Verdict,
)
from memory.kernel import pauses
from memory.kernel.admin import masking
from memory.kernel.admin.actions import NotedActionForm, ask, note_of, report, staff_of
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import (
    badge,
    counted,
    inline,
    lines,
    local_time,
    rule_of,
    sandbox,
    sandbox_badge,
    shortened,
)
from memory.kernel.admin.links import link
from memory.kernel.models.hosts import warning_of

SNOOZES = ["snooze_for_a_day", "snooze_for_a_week", "snooze_until_it_changes"]
# Maximum number of alerts that can be resolved at once; the confirmation page lists them all.
MAX_RESOLVED = 200
WHY_LEFT = {
    "acknowledged": "already acknowledged or resolved",
    "reopened": "already open, or the finding no longer exists",
    "marked as useful": "feedback applies only to findings",
    "marked as wrong": "feedback applies only to findings",
}


def _verdicts(verdict: Verdict) -> Subquery:
    """Return a subquery that counts one kind of verdict on an alert's constraint.

    It counts only verdicts from the alert's own workspace.
    """
    judged = AlertFeedback.objects.filter(
        verdict=verdict,
        alert__constraint=OuterRef("constraint"),
        alert__user__workspace=OuterRef("user__workspace"),
    )
    counts = judged.order_by().values("verdict").annotate(number=Count("pk"))
    return Subquery(counts.values("number"))


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    """Alerts, with their evidence traced back to the messages in the log."""

    labels = {"last_run": "last reported by"}

    list_display = [
        *("level", "headline", "standing", "user", "rule_name", "verdicts", "opened_at")
    ]
    action_form = NotedActionForm
    action_note = "Reason (kept in the history)"
    list_display_links = ["headline"]
    list_filter = ["state", "severity", "kind", "opened_at"]
    search_fields = ["user__user_id", "constraint", "duplicates__constraint", "message"]
    search_help_text = "Search by user id, constraint or message."
    # Most urgent alerts first: live before resolved, severe before mild, new before old.
    ordering = [BY_STATE, BY_SEVERITY, "-opened_at"]
    actions = ["acknowledge", *SNOOZES, "reopen", "resolve", "useful", "wrong"]
    asking = ["resolve"]
    when_empty = "No constraint has raised an alert yet."
    fieldsets = [
        section(None, ("level", "standing", "user", "opened_here")),
        section("Evidence", "evidence_tree"),
        section("Constraint", "rule", "found_also", "last_run", "ran_in"),
        section("Feedback", "judged", "verdicts"),
        section(
            "Other times (UTC)",
            *("open_since", "changed_at", "resolved_at", "snoozed_until", "escalate_at"),
            "escalated_at",
            collapsed=True,
        ),
        section("Identity", "id", "fingerprint", collapsed=True),
    ]
    inlines = [AlertEventInline]

    evidence_tree = row_column(show_records, "records")
    rule = row_column(show_constraint, "source")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        return (
            super()
            .get_queryset(request)
            .filter(duplicate_of=None)
            .prefetch_related("duplicates")
            .annotate(
                runner=F("last_run__runner"),
                is_paused=ExpressionWrapper(
                    pauses.are_paused("user", "user__workspace"), output_field=BooleanField()
                ),
                useful_verdicts=_verdicts(Verdict.USEFUL),
                wrong_verdicts=_verdicts(Verdict.WRONG),
            )
        )

    def actions_for(self, row: Alert) -> Collection[str]:
        """Offer what the state allows; if the alert is resolved for good, only feedback."""
        verdicts = ["useful", "wrong"] if row.kind == AlertKind.FINDING else []
        match row.state:
            case AlertState.OPEN:
                return ["acknowledge", *SNOOZES, "resolve", *verdicts]
            case AlertState.ACKNOWLEDGED:
                return [*SNOOZES, "reopen", "resolve", *verdicts]
            case AlertState.SNOOZED:
                return ["acknowledge", "reopen", "resolve", *verdicts]
        return ["reopen", *verdicts] if row.holds_back else verdicts

    def subtitle_of(self, alert: Alert) -> str:
        return super().subtitle_of(alert) if masking.is_hidden() else alert.message

    @content_column("message", "message")
    def headline(self, alert: Alert) -> str:
        return inline(shortened(alert.message, 500))

    @plain_column("severity", BY_SEVERITY)
    def level(self, alert: Alert) -> str:
        badges: list[str] = [badge(alert.severity, alert.get_severity_display())]
        if alert.kind != AlertKind.FINDING:
            badges.append(badge(alert.kind, alert.get_kind_display()))
        runner = getattr(alert, "runner", "") or ""
        if warning_of(runner):
            badges.append(sandbox_badge(runner))
        return format_html_join(" ", "{}", ((one,) for one in badges))

    @plain_column("state", BY_STATE)
    def standing(self, alert: Alert) -> str:
        state = badge(alert.state, alert.get_state_display())
        is_paused = getattr(alert, "is_paused", False)
        return format_html("{} {}", state, badge("paused", "user paused")) if is_paused else state

    @plain_column("opened")
    def opened_here(self, alert: Alert) -> str:
        return local_time(alert.opened_at, alert.user)

    @plain_column("useful")
    def verdicts(self, alert: Alert) -> str:
        """Show how precise the alert's constraint has been in the alert's workspace."""
        useful = getattr(alert, "useful_verdicts", None) or 0
        return in_words(Precision(useful, getattr(alert, "wrong_verdicts", None) or 0))

    @content_column("verdicts on this alert")
    def judged(self, alert: Alert) -> str:
        return lines(
            format_html(
                "{} {}: {} {}",
                badge(one.verdict, one.get_verdict_display()),
                one.get_judge_display(),
                inline(one.actor),
                inline(one.note),
            )
            for one in alert.feedback.all()
        )

    @content_column("constraint", "constraint")
    def rule_name(self, alert: Alert) -> str:
        return format_html_join(
            ", ", "{}", ((inline(rule_of(one.constraint)),) for one in alert.causes)
        )

    @content_column("also reported by")
    def found_also(self, alert: Alert) -> str:
        return lines(
            format_html("{}: {}", inline(one.constraint), inline(one.message))
            for one in alert.causes[1:]
        )

    @plain_column("executed in")
    def ran_in(self, alert: Alert) -> str:
        return sandbox(alert.last_run.runner if alert.last_run else "")

    @admin.action(description="Acknowledge the selected alerts", permissions=["operate"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._do(
            request,
            queryset.filter(state__in=[AlertState.OPEN, AlertState.SNOOZED]),
            lambda alert, **by: alert_actions.acknowledge(alert, note=note_of(request), **by),
            chosen=queryset,
            verb="acknowledged",
        )

    @admin.action(description="Snooze the selected alerts for a day", permissions=["operate"])
    def snooze_for_a_day(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._snooze(request, queryset, timezone.now() + datetime.timedelta(days=1))

    @admin.action(description="Snooze the selected alerts for a week", permissions=["operate"])
    def snooze_for_a_week(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._snooze(request, queryset, timezone.now() + datetime.timedelta(days=7))

    @admin.action(
        description="Snooze the selected alerts until they change", permissions=["operate"]
    )
    def snooze_until_it_changes(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._snooze(request, queryset, None)

    @admin.action(description="Reopen the selected alerts", permissions=["operate"])
    def reopen(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.reopen(alert, note=note_of(request), **by),
            verb="reopened",
        )

    @admin.action(description="Resolve the selected alerts…", permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> TemplateResponse | None:
        """Ask for confirmation, then resolve the alerts.

        If the constraint keeps reporting the same unchanged finding, no new alert is opened.
        """
        if not self.is_confirmed(request, "resolve", queryset):
            return _ask_to_resolve(request, queryset)
        reason = note_of(request, "resolved by staff")
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.resolve(alert, reason=reason, **by),
            verb="resolved",
        )
        return None

    @admin.action(description="Mark the selected alerts as useful", permissions=["operate"])
    def useful(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._judge(request, queryset, Verdict.USEFUL)

    @admin.action(description="Mark the selected alerts as wrong", permissions=["operate"])
    def wrong(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._judge(request, queryset, Verdict.WRONG)

    def _snooze(
        self, request: HttpRequest, queryset: QuerySet[Alert], until: datetime.datetime | None
    ) -> None:
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.snooze(
                alert, until=until, note=note_of(request), **by
            ),
            verb="snoozed",
        )

    def _judge(self, request: HttpRequest, queryset: QuerySet[Alert], verdict: Verdict) -> None:
        self._do(
            request,
            queryset.filter(kind=AlertKind.FINDING),
            lambda alert, **by: feedback.give(
                alert, judge=Judge.STAFF, verdict=verdict, note=note_of(request), **by
            ),
            chosen=queryset,
            verb=f"marked as {verdict}",
        )

    def _do(
        self,
        request: HttpRequest,
        fitting: QuerySet[Alert],
        act: Callable[..., Alert],
        *,
        verb: str,
        chosen: QuerySet[Alert] | None = None,
    ) -> None:
        """Apply `act` to the alerts in `fitting`, and report how many it changed and skipped."""
        number = (fitting if chosen is None else chosen).count()
        done = 0
        for alert in fitting:
            with suppress(alert_actions.AlertNotOpen):
                act(alert, actor=staff_of(request))
                done += 1
        report(request, "alert", done, number, verb, WHY_LEFT.get(verb, "already resolved"))


def _ask_to_resolve(request: HttpRequest, chosen: QuerySet[Alert]) -> TemplateResponse | None:
    """Return a confirmation page that lists the alerts, or None if there are too many of them."""
    rows = list(chosen.select_related("user")[: MAX_RESOLVED + 1])
    if len(rows) > MAX_RESOLVED:
        messages.error(request, f"Nothing was done: select at most {MAX_RESOLVED} alerts.")
        return None
    return ask(
        request,
        "resolve",
        rows,
        Alert,
        title=f"Resolve {counted(len(rows), 'alert')}?",
        verb="Resolve",
        alerts=[format_html("{} for {}", link_to_alert(one), link(one.user)) for one in rows],
        resumes=any(one.kind == AlertKind.CONSTRAINT_PAUSED for one in rows),
    )
