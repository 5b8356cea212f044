"""Admin screens for alerts and their events."""

import datetime
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.admin import masking
from memory.admin.base import (
    NotedActionForm,
    ReadOnlyAdmin,
    ask,
    entry_pages,
    link,
    link_to_alert,
    link_to_rejected,
    note_of,
    page_url,
    staff_of,
)
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    facts,
    folded,
    inline,
    lines,
    record_name,
    rule_of,
    sandbox,
    sandbox_badge,
    shortened,
    source,
)
from memory.admin.evidence import local_time, show_entries, show_fields
from memory.admin.source import block, statements_that_say
from memory.alerting import feedback, lifecycle
from memory.alerting.feedback import Precision, in_words
from memory.checkpoints import Redacted, read_files
from memory.constraints import applicability
from memory.delivery import rejections
from memory.models import Alert, AlertEvent, AlertFeedback, EventCounter, RecordLocation
from memory.models.alerts import (
    BY_SEVERITY,
    BY_STATE,
    AlertKind,
    AlertState,
    Judge,
    Verdict,
)
from memory.models.runs import warning_of
from memory.privacy.redaction import TOLD
from memory.project.values import RecordId
from memory.provenance import read_records

SNOOZES = ["snooze_for_a_day", "snooze_for_a_week", "snooze_until_it_changes"]
# Number of source lines shown before and after the lines that raised an alert.
AROUND = 4
# Maximum number of alerts that can be resolved at once; the confirmation page lists them all.
MAX_RESOLVED = 200
WHY_LEFT = {
    "acknowledged": "already acknowledged or resolved",
    "reopened": "already open, or the finding no longer exists",
    "marked as useful": "feedback applies only to findings",
    "marked as wrong": "feedback applies only to findings",
}


def _verdicts(verdict: Verdict) -> Subquery:
    """Return a subquery that counts the verdicts of one kind on an alert's constraint.

    Only verdicts in the alert's own workspace are counted.
    """
    judged = AlertFeedback.objects.filter(
        verdict=verdict,
        alert__constraint=OuterRef("constraint"),
        alert__user__workspace=OuterRef("user__workspace"),
    )
    counts = judged.order_by().values("verdict").annotate(number=Count("pk"))
    return Subquery(counts.values("number"))


class _Step:
    """Columns shown both in the list of events and in the history on an alert's page."""

    @admin.display(description="step", ordering="kind")
    def step(self, event: AlertEvent) -> str:
        """Show the event's kind."""
        return badge(event.kind, event.get_kind_display())

    @admin.display(description="run")
    def by_run(self, event: AlertEvent) -> str:
        """Link to the run that caused the event."""
        return link(event.run)

    @admin.display(description="detail")
    def details(self, event: AlertEvent) -> str:
        """Show the event's details, such as what changed or why."""
        return facts(event.detail) or NOTHING


class AlertEventInline(_Step, admin.TabularInline[AlertEvent, Alert]):
    """The history of an alert, shown on its page."""

    model = AlertEvent
    verbose_name_plural = "history"
    extra = 0
    can_delete = False
    fields = ["at", "step", "actor", "by_run", "details"]
    readonly_fields = ["step", "by_run", "details"]
    ordering = ["seq"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: events cannot be added to the history manually."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: events in the history cannot be changed."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        """Fetch the events' runs in the same query."""
        return super().get_queryset(request).select_related("run")


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    """Alerts, with their evidence traced back to the messages in the log."""

    list_display = [
        *("level", "headline", "standing", "user_link", "rule_name", "verdicts", "opened_at")
    ]
    action_form = NotedActionForm
    action_note = "Reason (kept in the history)"
    list_display_links = ["headline"]
    list_filter = [
        "state",
        "severity",
        "kind",
        ("opened_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user"]
    search_fields = ["user__user_id", "constraint", "duplicates__constraint", "message"]
    search_help_text = "Search by user id, constraint or message."
    # Most urgent first: live before resolved, severe before mild, new before old.
    ordering = [BY_STATE, BY_SEVERITY, "-opened_at"]
    actions = ["acknowledge", *SNOOZES, "reopen", "resolve", "useful", "wrong"]
    asking = ["resolve"]
    when_empty = "No constraint has raised an alert yet."
    fieldsets = [
        (None, {"fields": [("level", "standing", "user_link", "opened_here")]}),
        ("Evidence", {"fields": ["evidence_tree"]}),
        ("Constraint", {"fields": ["rule", "found_also", "run_link", "ran_in"]}),
        ("Feedback", {"fields": ["judged", "verdicts"]}),
        (
            "Other times (UTC)",
            {
                "classes": ["collapse"],
                "fields": [
                    *("open_since", "changed_at", "resolved_at"),
                    *("snoozed_until", "escalate_at", "escalated_at"),
                ],
            },
        ),
        ("Identity", {"classes": ["collapse"], "fields": ["id", "fingerprint"]}),
    ]
    inlines = [AlertEventInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Annotate alerts with their last run's sandbox and their constraint's verdict counts."""
        return (
            super()
            .get_queryset(request)
            .filter(duplicate_of=None)
            .prefetch_related("duplicates")
            .annotate(
                runner=F("last_run__runner"),
                useful_verdicts=_verdicts(Verdict.USEFUL),
                wrong_verdicts=_verdicts(Verdict.WRONG),
            )
        )

    def actions_for(self, row: Alert) -> Collection[str]:
        """Offer the actions allowed in the alert's state; after final resolution, only feedback."""
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
        """Return the alert's message as the page heading; the severity is shown below it."""
        return super().subtitle_of(alert) if masking.is_hidden() else alert.message

    @admin.display(description="message", ordering="message")
    def headline(self, alert: Alert) -> str:
        """Show the alert's message."""
        return inline(shortened(alert.message, 500))

    @admin.display(description="severity", ordering=BY_SEVERITY)
    def level(self, alert: Alert) -> str:
        """Show the severity, the kind of alert unless it is a finding, and any sandbox warning."""
        badges: list[str] = [badge(alert.severity, alert.get_severity_display())]
        if alert.kind != AlertKind.FINDING:
            badges.append(badge(alert.kind, alert.get_kind_display()))
        runner = getattr(alert, "runner", "") or ""
        if warning_of(runner):
            badges.append(sandbox_badge(runner))
        return format_html_join(" ", "{}", ((one,) for one in badges))

    @admin.display(description="state", ordering=BY_STATE)
    def standing(self, alert: Alert) -> str:
        """Show the alert's state."""
        return badge(alert.state, alert.get_state_display())

    @admin.display(description="opened")
    def opened_here(self, alert: Alert) -> str:
        """Show when the alert opened, in the user's time zone."""
        return local_time(alert.opened_at, alert.user)

    @admin.display(description="useful")
    def verdicts(self, alert: Alert) -> str:
        """Show the precision of the alert's constraint in the alert's workspace."""
        useful = getattr(alert, "useful_verdicts", None) or 0
        return in_words(Precision(useful, getattr(alert, "wrong_verdicts", None) or 0))

    @admin.display(description="verdicts on this alert")
    def judged(self, alert: Alert) -> str:
        """Show the verdicts that the product and the staff have given on this alert."""
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

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, alert: Alert) -> str:
        """Link to the user."""
        return link(alert.user)

    @admin.display(description="constraint", ordering="constraint")
    def rule_name(self, alert: Alert) -> str:
        """Show the names of the constraints that raise the alert."""
        return format_html_join(
            ", ", "{}", ((inline(rule_of(one.constraint)),) for one in alert.causes)
        )

    @admin.display(description="records")
    def evidence_tree(self, alert: Alert) -> str:
        """List the cited records, each with its fields, its entries and their source messages."""
        if not alert.evidence:
            return "The constraint cited no record as evidence."
        entries = show_entries(alert.user, alert.entries)
        locations, fields = _locations(alert), _fields(alert)
        return lines(
            format_html(
                "{} in {}{}{}",
                _record_link(item, locations.get(_record_id(item))),
                inline(f"{item['domain']}.{item['collection']}"),
                show_fields(fields.get(_record_id(item), {})),
                lines(entries[seq] for seq in item["sources"] if seq in entries),
            )
            for item in alert.evidence
        )

    @admin.display(description="source")
    def rule(self, alert: Alert) -> str:
        """Show the constraint's source as of the run that last reported the alert."""
        checkpoint = alert.last_run.checkpoint if alert.last_run else None
        path = inline(alert.constraint)
        if (ours := applicability.version_of(alert)) is not None:
            return format_html("<div>{} is {}</div>{}", path, link(ours), _rule(alert, ours.source))
        if checkpoint is None or alert.constraint not in checkpoint.tree:
            return format_html("{} (not in the project at that time)", path)
        try:
            text = read_files(checkpoint, [alert.constraint])[alert.constraint]
        except Redacted:
            return format_html("{} {}", path, TOLD)
        version = link(checkpoint, f"v{checkpoint.version}")
        return format_html("<div>{} in {}</div>{}", path, version, _rule(alert, text))

    @admin.display(description="also reported by")
    def found_also(self, alert: Alert) -> str:
        """List the other constraints that report the same finding, with their messages."""
        return lines(
            format_html("{}: {}", inline(one.constraint), inline(one.message))
            for one in alert.causes[1:]
        )

    @admin.display(description="last reported by")
    def run_link(self, alert: Alert) -> str:
        """Link to the run that last reported the alert."""
        return link(alert.last_run)

    @admin.display(description="executed in")
    def ran_in(self, alert: Alert) -> str:
        """Show the kind of sandbox that the run used, with a warning if it is for development."""
        return sandbox(alert.last_run.runner if alert.last_run else "")

    @admin.action(description="Acknowledge the selected alerts", permissions=["operate"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Acknowledge the alerts."""
        self._do(
            request,
            queryset.filter(state__in=[AlertState.OPEN, AlertState.SNOOZED]),
            lambda alert, **by: lifecycle.acknowledge(alert, note=note_of(request), **by),
            chosen=queryset,
            verb="acknowledged",
        )

    @admin.action(description="Snooze the selected alerts for a day", permissions=["operate"])
    def snooze_for_a_day(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Snooze the alerts for a day."""
        self._snooze(request, queryset, timezone.now() + datetime.timedelta(days=1))

    @admin.action(description="Snooze the selected alerts for a week", permissions=["operate"])
    def snooze_for_a_week(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Snooze the alerts for a week."""
        self._snooze(request, queryset, timezone.now() + datetime.timedelta(days=7))

    @admin.action(
        description="Snooze the selected alerts until they change", permissions=["operate"]
    )
    def snooze_until_it_changes(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Snooze each alert until its severity or its records change."""
        self._snooze(request, queryset, None)

    @admin.action(description="Reopen the selected alerts", permissions=["operate"])
    def reopen(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Reopen alerts that were acknowledged, snoozed or manually resolved."""
        self._do(
            request,
            queryset,
            lambda alert, **by: lifecycle.reopen(alert, note=note_of(request), **by),
            verb="reopened",
        )

    @admin.action(description="Resolve the selected alerts…", permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> TemplateResponse | None:
        """Ask for confirmation, then resolve the alerts.

        A constraint that keeps reporting the same, unchanged finding does not open a new alert.
        """
        if not self.is_confirmed(request, "resolve", queryset):
            return _ask_to_resolve(request, queryset)
        reason = note_of(request, "resolved by staff")
        self._do(
            request,
            queryset,
            lambda alert, **by: lifecycle.resolve(alert, reason=reason, **by),
            verb="resolved",
        )
        return None

    @admin.action(description="Mark the selected alerts as useful", permissions=["operate"])
    def useful(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Record that the alerts are useful."""
        self._judge(request, queryset, Verdict.USEFUL)

    @admin.action(description="Mark the selected alerts as wrong", permissions=["operate"])
    def wrong(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Record that the alerts are wrong."""
        self._judge(request, queryset, Verdict.WRONG)

    def _snooze(
        self, request: HttpRequest, queryset: QuerySet[Alert], until: datetime.datetime | None
    ) -> None:
        self._do(
            request,
            queryset,
            lambda alert, **by: lifecycle.snooze(alert, until=until, note=note_of(request), **by),
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
        """Apply `act` to the alerts in `fitting`, and report how many were changed and skipped."""
        number = (fitting if chosen is None else chosen).count()
        done = 0
        for alert in fitting:
            with suppress(lifecycle.AlertNotOpen):
                act(alert, actor=staff_of(request))
                done += 1
        if done:
            messages.success(request, f"{counted(done, 'alert')} {verb}.")
        if done < number:
            left = f"{counted(number - done, 'alert')} skipped"
            messages.warning(request, f"{left}: {WHY_LEFT.get(verb, 'already resolved')}.")


def _record_id(item: Mapping[str, Any]) -> RecordId:
    return RecordId(item["domain"], item["collection"], item["key"])


def _record_link(item: Mapping[str, Any], location: RecordLocation | None) -> SafeString:
    name = record_name(item["class"], item["key"])
    if location is None:
        return name
    return format_html('<a href="{}">{}</a>', page_url(location), name)


def _locations(alert: Alert) -> Mapping[RecordId, RecordLocation]:
    """Return the locations of the records in the alert's evidence."""
    keys = {item["key"] for item in alert.evidence}
    rows = RecordLocation.objects.filter(user=alert.user, key__in=keys)
    return {RecordId(row.domain, row.collection, row.key): row for row in rows}


def _fields(alert: Alert) -> Mapping[RecordId, Mapping[str, Any]]:
    """Return the fields of the records cited by the alert, as of the run that last reported it."""
    checkpoint = alert.last_run.checkpoint if alert.last_run else None
    if checkpoint is None:
        return {}
    try:
        found = read_records(checkpoint, [_record_id(item) for item in alert.evidence])
    except Redacted:
        return {}
    return {record: value["fields"] for record, value in found.items()}


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


def _rule(alert: Alert, text: str) -> SafeString:
    """Show the constraint's source, folded, with the lines that raised the alert highlighted."""
    is_finding = alert.kind == AlertKind.FINDING
    places = (
        statements_that_say(text, alert.severity, alert.message)
        if is_finding
        else _failed_at(alert)
    )
    if not places:
        return folded("Source", source(text))
    marked = {number for place in places for number in place}
    where = ", ".join(
        str(place[0]) if len(place) == 1 else f"{place[0]}–{place[-1]}" for place in places
    )
    noun = "line" if len(marked) == 1 else "lines"
    if len(places) > 1:
        noun = f"one of the {noun}"
    verb = "Raised" if is_finding else "Failed"
    told = f"{verb} on {noun} {where} (highlighted)."
    excerpt = block(text, marked=marked, around=AROUND)
    whole = folded("Full source", source(text, marked=marked))
    return folded(told, format_html("{}{}", excerpt, whole))


def _failed_at(alert: Alert) -> list[range]:
    """Return the line where the constraint failed in the run that last reported the alert."""
    output = alert.last_run.output if alert.last_run else None
    for said in output.get("constraints", ()) if isinstance(output, dict) else ():
        error = said["error"] if said["path"] == alert.constraint else None
        if error and error.get("path") == alert.constraint and error.get("line"):
            return [range(error["line"], error["line"] + 1)]
    return []


@admin.register(AlertEvent)
class AlertEventAdmin(_Step, ReadOnlyAdmin[AlertEvent]):
    """The event feed: alert events and rejections of entries, newest first."""

    list_display = ["at", "seq", "step", "actor_name", "about", "details"]
    list_filter = ["kind", "workspace"]
    list_select_related = ["alert"]
    search_fields = ["alert__user__user_id", "user__user_id", "actor"]
    search_help_text = "Search by user id or actor."
    ordering = ["-pk"]  # newest row first: sorting a million rows by time would be slow
    when_empty = "No alert has been opened and no entry rejected yet."
    fields = [
        *("seq", "about", "user_link", "step", "at", "actor", "by_run", "details", "rejected"),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertEvent]:
        """Defer the column `entries`, which lists do not show."""
        return super().get_queryset(request).defer("entries")

    @admin.display(description="actor", ordering="actor")
    def actor_name(self, event: AlertEvent) -> str:
        """Show who caused the event."""
        return inline(event.actor)

    @admin.display(description="about")
    def about(self, event: AlertEvent) -> str:
        """Link to the alert or the rejected entries that the event is about."""
        if event.alert is None:
            return link_to_rejected(event)
        return link(event.alert, shortened(str(event.alert)))

    @admin.display(description="user")
    def user_link(self, event: AlertEvent) -> str:
        """Link to the user."""
        return link(event.person)

    @admin.display(description="rejected entries")
    def rejected(self, event: AlertEvent) -> str:
        """List the rejected entries, each with the reason for its rejection."""
        named = rejections.named_by([event]).get(event.pk, ())
        pages = entry_pages(event.person, [one.seq for one in named])
        rows = [
            format_html('<a href="{}">#{}</a> {}', pages[one.seq], one.seq, inline(one.reason))
            for one in named
        ]
        more = len(event.entries) - len(named)
        return lines([*rows, f"{more} more"] if more else rows)


@admin.register(EventCounter)
class EventCounterAdmin(ReadOnlyAdmin[EventCounter]):
    """The number of the newest event in each workspace."""

    list_display = ["workspace_name", "last_seq"]
    list_display_links = ["last_seq"]
    list_select_related = ["workspace"]
    search_fields = ["workspace__name"]
    search_help_text = "Search by workspace."
    when_empty = "No alert has been opened yet."
    fields = ["workspace_name", "last_seq"]

    @admin.display(description="workspace", ordering="workspace__name")
    def workspace_name(self, counter: EventCounter) -> str:
        """Link to the workspace."""
        return link(counter.workspace)
