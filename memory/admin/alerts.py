"""Alerts."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import Case, F, IntegerField, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from memory import alerts
from memory.admin.base import ReadOnlyAdmin, link, link_to_entry
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    facts,
    inline,
    lines,
    record_name,
    sandbox,
    sandbox_badge,
    shortened,
    source,
)
from memory.checkpoints import read_files
from memory.models import Alert, AlertEvent, EventCounter, LogEntry
from memory.models.alerts import AlertKind, AlertState, Severity
from memory.models.runs import warning_of


def _in_order(field: str, values: list[str]) -> Case:
    """Sort by where a row's value stands among these."""
    return Case(
        *(When(**{field: value}, then=Value(place)) for place, value in enumerate(values)),
        output_field=IntegerField(),
    )


BY_SEVERITY = _in_order("severity", list(reversed(Severity.values)))
BY_STATE = _in_order("state", AlertState.values)


class AlertEventInline(admin.TabularInline[AlertEvent, Alert]):
    """The alert's history."""

    model = AlertEvent
    verbose_name_plural = "history"
    extra = 0
    can_delete = False
    fields = ["at", "step", "actor", "by_run", "details"]
    readonly_fields = ["step", "by_run", "details"]
    ordering = ["seq"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History is not written by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History is not changed."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        """Fetch the runs along."""
        return super().get_queryset(request).select_related("run")

    @admin.display(description="step")
    def step(self, event: AlertEvent) -> str:
        """Show what happened."""
        return badge(event.kind, event.get_kind_display())

    @admin.display(description="run")
    def by_run(self, event: AlertEvent) -> str:
        """Lead to the run that did it."""
        return link(event.run)

    @admin.display(description="detail")
    def details(self, event: AlertEvent) -> str:
        """Say what changed, or why."""
        return facts(event.detail) or NOTHING


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    """What the constraints found: the message, and the whole way back to what was said."""

    list_display = ["level", "headline", "standing", "user_link", "rule_name", "opened_at"]
    list_display_links = ["headline"]
    list_filter = [
        "state",
        "severity",
        "kind",
        ("opened_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user"]
    search_fields = ["user__user_id", "constraint", "message"]
    search_help_text = "By user id, constraint or message."
    # What needs somebody first: live before resolved, grave before slight, new before old.
    ordering = [BY_STATE, BY_SEVERITY, "-opened_at"]
    actions = ["acknowledge", "resolve"]
    when_empty = "No constraint has found anything yet."
    fieldsets = [
        (None, {"fields": [("level", "standing"), "headline", "user_link"]}),
        ("What it rests on", {"fields": ["evidence_tree"]}),
        ("The constraint that speaks", {"fields": ["rule", "run_link", "ran_in"]}),
        ("Times", {"fields": ["opened_at", "changed_at", "resolved_at"]}),
        ("Identity", {"classes": ["collapse"], "fields": ["id", "fingerprint"]}),
    ]
    inlines = [AlertEventInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Tell of the run that found it last where that was."""
        return super().get_queryset(request).annotate(runner=F("last_run__runner"))

    def actions_for(self, row: Alert) -> Collection[str]:
        """What is resolved is over."""
        if row.state == AlertState.RESOLVED:
            return []
        return ["acknowledge", "resolve"] if row.state == AlertState.OPEN else ["resolve"]

    @admin.display(description="message", ordering="message")
    def headline(self, alert: Alert) -> str:
        """Show the message."""
        return inline(shortened(alert.message, 500))

    @admin.display(description="severity", ordering=BY_SEVERITY)
    def level(self, alert: Alert) -> str:
        """Show how grave it is, whether it is about the constraint, and how far to trust it."""
        badges: list[str] = [badge(alert.severity, alert.get_severity_display())]
        if alert.kind != AlertKind.FINDING:
            badges.append(badge(alert.kind, alert.get_kind_display()))
        runner = getattr(alert, "runner", "") or ""
        if warning_of(runner):
            badges.append(sandbox_badge(runner))
        return format_html_join(" ", "{}", ((one,) for one in badges))

    @admin.display(description="state", ordering=BY_STATE)
    def standing(self, alert: Alert) -> str:
        """Show where it is in its life."""
        return badge(alert.state, alert.get_state_display())

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, alert: Alert) -> str:
        """Lead to the user."""
        return link(alert.user)

    @admin.display(description="constraint", ordering="constraint")
    def rule_name(self, alert: Alert) -> str:
        """Name the constraint."""
        return inline(alert.constraint.removeprefix("constraints/").removesuffix(".py"))

    @admin.display(description="records")
    def evidence_tree(self, alert: Alert) -> str:
        """Show each record with the entries that it rests on."""
        entries = {
            entry.seq: entry
            for entry in LogEntry.objects.filter(user_id=alert.user_id, seq__in=alert.entries)
        }
        if not alert.evidence:
            return "The constraint named no record."
        return lines(
            format_html(
                "{} in {}{}",
                record_name(item["class"], item["key"]),
                inline(f"{item['domain']}.{item['collection']}"),
                lines(link_to_entry(entries[seq]) for seq in item["sources"] if seq in entries),
            )
            for item in alert.evidence
        )

    @admin.display(description="source")
    def rule(self, alert: Alert) -> str:
        """Show the constraint's source, as of the run that found it last."""
        checkpoint = alert.last_run.checkpoint if alert.last_run else None
        path = inline(alert.constraint)
        if checkpoint is None or alert.constraint not in checkpoint.tree:
            return format_html("{} (not a file of the project then)", path)
        text = read_files(checkpoint, [alert.constraint])[alert.constraint]
        version = link(checkpoint, f"v{checkpoint.version}")
        return format_html("<div>{} in {}</div>{}", path, version, source(text))

    @admin.display(description="found last by")
    def run_link(self, alert: Alert) -> str:
        """Lead to the run that found it last."""
        return link(alert.last_run)

    @admin.display(description="ran in")
    def ran_in(self, alert: Alert) -> str:
        """Name the kind of sandbox, and warn of the one for development."""
        return sandbox(alert.last_run.runner if alert.last_run else "")

    @admin.action(description="Acknowledge the selected alerts", permissions=["operate"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Mark them as seen."""
        chosen = list(queryset)
        waiting = [alert for alert in chosen if alert.state == AlertState.OPEN]
        done = _each(waiting, lambda alert: alerts.acknowledge(alert, actor=_staff(request)))
        _report(request, done, len(chosen), "acknowledged")

    @admin.action(description="Resolve the selected alerts", permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Close them; a constraint that still finds the same opens a new one."""
        chosen = list(queryset)
        done = _each(
            chosen,
            lambda alert: alerts.resolve(alert, actor=_staff(request), reason="resolved by staff"),
        )
        _report(request, done, len(chosen), "resolved")


def _staff(request: HttpRequest) -> str:
    return f"staff:{request.user.get_username()}"


def _each(chosen: Iterable[Alert], act: Callable[[Alert], Alert]) -> int:
    """Do it to each that is still live; returns to how many."""
    done = 0
    for alert in chosen:
        try:
            act(alert)
        except alerts.AlertNotOpen:
            continue
        done += 1
    return done


def _report(request: HttpRequest, done: int, chosen: int, verb: str) -> None:
    if done:
        messages.success(request, f"{counted(done, 'alert')} {verb}.")
    if done < chosen:
        past = f"{verb} or resolved" if verb != "resolved" else verb
        messages.warning(request, f"{counted(chosen - done, 'alert')} left: {past} already.")


@admin.register(AlertEvent)
class AlertEventAdmin(ReadOnlyAdmin[AlertEvent]):
    """What happened to alerts, newest first."""

    list_display = ["at", "seq", "step", "actor_name", "alert_link", "details"]
    list_filter = ["kind", "alert__user__workspace"]
    list_select_related = ["alert"]
    search_fields = ["alert__user__user_id", "actor"]
    search_help_text = "By user id or actor."
    ordering = ["-at", "-seq"]
    when_empty = "No alert has been opened yet."
    fields = ["seq", "alert_link", "user_link", "step", "at", "actor", "by_run", "details"]

    @admin.display(description="step", ordering="kind")
    def step(self, event: AlertEvent) -> str:
        """Show what happened."""
        return badge(event.kind, event.get_kind_display())

    @admin.display(description="actor", ordering="actor")
    def actor_name(self, event: AlertEvent) -> str:
        """Name who did it."""
        return inline(event.actor)

    @admin.display(description="alert")
    def alert_link(self, event: AlertEvent) -> str:
        """Lead to the alert."""
        return link(event.alert, shortened(str(event.alert)))

    @admin.display(description="user")
    def user_link(self, event: AlertEvent) -> str:
        """Lead to the user."""
        return link(event.alert.user)

    @admin.display(description="run")
    def by_run(self, event: AlertEvent) -> str:
        """Lead to the run that did it."""
        return link(event.run)

    @admin.display(description="detail")
    def details(self, event: AlertEvent) -> str:
        """Say what changed, or why."""
        return facts(event.detail) or NOTHING


@admin.register(EventCounter)
class EventCounterAdmin(ReadOnlyAdmin[EventCounter]):
    """How many events there have been."""

    list_display = ["workspace_name", "last_seq"]
    list_select_related = ["workspace"]
    search_fields = ["workspace__name"]
    search_help_text = "By workspace."
    when_empty = "No alert has been opened yet."
    fields = ["workspace_name", "last_seq"]

    @admin.display(description="workspace", ordering="workspace__name")
    def workspace_name(self, counter: EventCounter) -> str:
        """Lead to the workspace."""
        return link(counter.workspace)
