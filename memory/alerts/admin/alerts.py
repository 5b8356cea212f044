"""Admin screens for alerts and their events."""

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from copy import copy
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import (
    BooleanField,
    Count,
    ExpressionWrapper,
    F,
    Max,
    Min,
    OuterRef,
    QuerySet,
    Subquery,
    prefetch_related_objects,
)
from django.http import HttpRequest, HttpResponseRedirect, JsonResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_GET

from memory.alerts import alert_actions, feedback
from memory.alerts.admin.alert_events import AlertEventInline
from memory.alerts.admin.evidence import show_constraint, show_records
from memory.alerts.admin.links import (
    describe_constraints,
    describe_rules,
    headline_of,
    link_to_alert,
    show_escalation,
)
from memory.alerts.feedback import Precision, describe_precision
from memory.alerts.models.alerts import (
    BY_SEVERITY,
    BY_STATE,
    BY_URGENCY,
    LIVE_STATES,
    Alert,
    AlertFeedback,
    AlertKind,
    AlertState,
    Judge,
    PausedConstraint,
    Verdict,
)
from memory.kernel import instants, pauses
from memory.kernel.admin import masking
from memory.kernel.admin.actions import Menu, ask, note_of, report, staff_of
from memory.kernel.admin.base import ReadOnlyAdmin, section
from memory.kernel.admin.columns import column, content_column, plain_column, row_column
from memory.kernel.admin.display import (
    ago,
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
from memory.kernel.admin.links import link, list_url, url_of_key
from memory.kernel.admin.rows import rows_for
from memory.kernel.models.fields import validate_time_zone
from memory.kernel.models.hosts import warning_of
from memory.kernel.models.users import MemoryUser

SNOOZES = ["snooze_for_a_day", "snooze_for_a_week", "snooze_until_it_changes", "snooze_until"]
# The action that undoes another, for alerts that were in this state before.
UNDO = {
    "acknowledged": ("reopen", AlertState.OPEN),
    "snoozed": ("reopen", AlertState.OPEN),
    "resolved": ("reopen", AlertState.OPEN),
    "reopened": ("acknowledge", AlertState.ACKNOWLEDGED),
}
# Maximum number of alerts that a page about an action on them lists.
MAX_LISTED = 200
# Maximum number of constraints named above the list, and of the list's live alerts that are counted
# for them.
MAX_GROUPS = 12
MAX_GROUPED = 1000
WHY_LEFT = {
    "acknowledged": "already acknowledged or resolved, or changed by somebody else since",
    "reopened": "already open, no longer found, or changed by somebody else since",
    "taken": "already resolved, or already yours",
    "released": "already resolved, or nobody's",
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


class OwnerFilter(admin.SimpleListFilter):
    """Separates the alerts that a staff member has taken from those of others and of nobody."""

    title = "owner"
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("me", "me"), ("nobody", "nobody"), ("others", "others")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        me = request.user.get_username()
        match self.value():
            case "me":
                return queryset.filter(assigned_to=me)
            case "nobody":
                return queryset.filter(assigned_to="")
            case "others":
                return queryset.exclude(assigned_to__in=["", me])
        return None


def _pulse(request: HttpRequest) -> Mapping[str, Any]:
    """Return how many alerts are open, and when the last one opened."""
    rows = rows_for(request, Alert).filter(duplicate_of=None, state=AlertState.OPEN).order_by()
    counts = rows.aggregate(open=Count("*"), newest=Max("open_since"))
    return {**counts, "newest": counts["newest"].isoformat() if counts["newest"] else ""}


def _group_by_constraint(changes: ChangeList) -> Iterator[Mapping[str, Any]]:
    """Yield the constraints of a list's first live alerts, with the number of alerts and users."""
    live = changes.queryset.filter(state__in=LIVE_STATES)[:MAX_GROUPED]
    # The list's annotations would be computed for each row.
    rows = Alert.objects.filter(pk__in=list(live.values_list("pk", flat=True))).values("constraint")
    counted_rows = rows.annotate(
        alerts=Count("pk"), users=Count("user", distinct=True), first_user=Min("user")
    )
    groups = list(counted_rows.order_by("-alerts", "constraint")[:MAX_GROUPS])
    # Joined above, the table of users would be read whole.
    first_users = MemoryUser.objects.filter(pk__in=[row["first_user"] for row in groups])
    workspaces = dict(first_users.values_list("pk", "workspace"))
    described = describe_constraints(set(workspaces.values()))
    for row in groups:
        path = row["constraint"]
        yield {
            "name": described.get((workspaces.get(row["first_user"], 0), path)) or rule_of(path),
            "rule": rule_of(path),
            "alerts": row["alerts"],
            "users": counted(row["users"], "user"),
            "url": changes.get_query_string({"constraint__exact": path}, ["p"]),
            "all_url": changes.get_query_string({}, ["constraint__exact", "p"]),
            "is_chosen": changes.params.get("constraint__exact") == path,
        }


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin[Alert]):
    """Alerts, with their evidence traced back to the messages in the log."""

    labels = {"last_run": "last reported by"}

    list_display = ["level", "headline", "standing", "about"]
    list_display_links = ["headline"]
    list_select_related = ["user__workspace"]
    list_filter = ["state", "severity", OwnerFilter, "kind", "opened_at"]
    search_fields = [
        *("user__user_id", "user__metadata"),
        *("constraint", "duplicates__constraint", "message"),
    ]
    search_help_text = "Search by user id, name, constraint or message."
    ordering = BY_URGENCY
    actions = [
        *("acknowledge", *SNOOZES, "resolve", "reopen", "useful", "wrong", "add_note"),
        *("take", "release"),
    ]
    menus = [
        Menu("Snooze", SNOOZES, note="Reason", template="admin/memory/until.html"),
        Menu("Rate", ["useful", "wrong"], note="Reason"),
        Menu("Note", ["add_note"], note="Note"),
        Menu("Owner", ["take", "release"]),
    ]
    asking = ["resolve"]
    when_empty = "No constraint has raised an alert yet."
    inlines = [AlertEventInline]

    evidence_tree = row_column(show_records, "said, and recorded")
    rule = row_column(show_constraint, "rule")

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

    def get_urls(self) -> list[URLPattern]:
        """Add what the list polls for news, and the way to the next alert."""
        wrap = self.admin_site.admin_view
        return [
            path("pulse/", wrap(require_GET(self.pulse)), name="memory_alert_pulse"),
            path("<path:pk>/next/", wrap(require_GET(self.next_alert)), name="memory_alert_next"),
            *super().get_urls(),
        ]

    def pulse(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse(_pulse(request))

    def next_alert(self, request: HttpRequest, pk: str) -> HttpResponseRedirect:
        """Redirect to the next open alert of the list that the reader came from, or to the list."""
        filters = request.GET.get("_changelist_filters", "")
        listed = copy(request)
        listed.GET = QueryDict(filters)
        rows = self.get_changelist_instance(listed).queryset.filter(state=AlertState.OPEN)
        keys = [str(key) for key in rows.values_list("pk", flat=True)[:MAX_LISTED]]
        rest = keys[keys.index(pk) + 1 :] if pk in keys else keys
        if not rest:
            messages.info(request, "There is no further open alert in this list.")
            return HttpResponseRedirect(f"{list_url(Alert)}?{filters}")
        query = urlencode({"_changelist_filters": filters}) if filters else ""
        return HttpResponseRedirect(f"{url_of_key(Alert, rest[0])}?{query}")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the live alerts of the list by constraint, above the list."""
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None) or {}
        if "cl" in context:
            context["pulse"] = _pulse(request)
            hidden = masking.is_hidden()
            context["groups"] = [] if hidden else list(_group_by_constraint(context["cl"]))
        return response

    def context_of(self, request: HttpRequest, row: Alert) -> dict[str, Any]:
        """Return what the alert's row in the list shows now, too."""
        cells = {"standing": self.standing(row), "about": self.about(row)}
        return {**super().context_of(request, row), "row": cells}

    def actions_for(self, row: Alert) -> Collection[str]:
        """Offer what the state allows; if the alert is resolved for good, only feedback."""
        owner = "release" if row.assigned_to else "take"
        always = ["add_note", *([owner] if row.state != AlertState.RESOLVED else [])]
        verdicts = [*always, *(["useful", "wrong"] if row.kind == AlertKind.FINDING else [])]
        match row.state:
            case AlertState.OPEN:
                return ["acknowledge", *SNOOZES, "resolve", *verdicts]
            case AlertState.ACKNOWLEDGED:
                return [*SNOOZES, "reopen", "resolve", *verdicts]
            case AlertState.SNOOZED:
                return ["acknowledge", "reopen", "resolve", *verdicts]
        return ["reopen", *verdicts] if row.holds_back else verdicts

    def get_fieldsets(self, request: HttpRequest, obj: Alert | None = None) -> Any:
        """Show what there is to say about the alert; how it came about is folded."""
        facts = ["level", "standing", "user", "workspace", "opened_here", "due", "owner"]
        rule = ["rule", *(["found_also"] if obj and len(obj.causes) > 1 else [])]
        if obj:
            prefetch_related_objects([obj], "feedback")
        if obj and obj.feedback.all():
            rule.append("judged")
        if obj and (obj.useful_verdicts or obj.wrong_verdicts):  # type: ignore[attr-defined]
            rule.append("verdicts")
        times = ["open_since", "changed_at", "resolved_at", "snoozed_until", "escalated_at"]
        known_times = [name for name in times if getattr(obj, name, None)]
        kind = obj.kind if obj else AlertKind.FINDING
        about_rule = ["detail", *(["pause"] if kind == AlertKind.CONSTRAINT_PAUSED else [])]
        return [
            section(None, tuple(facts), facts=True),
            section("Evidence", "evidence_tree")
            if kind == AlertKind.FINDING
            else section(kind.capitalize().replace("_", " "), *about_rule),
            section("Constraint", *rule),
            section(
                "Times and run",
                *(*known_times, "last_run", "ran_in", "id", "fingerprint"),
                collapsed=True,
            ),
        ]

    def title_of(self, alert: Alert) -> str:
        rule = [] if masking.is_hidden() else [rule_of(alert.constraint)]
        severity = alert.get_severity_display().capitalize()
        return " · ".join([severity, masking.name_of(alert.user), *rule])

    def subtitle_of(self, alert: Alert) -> str:
        if masking.is_hidden():
            return super().subtitle_of(alert)
        if alert.kind == AlertKind.FINDING:
            return alert.message
        return headline_of(alert, describe_rules(alert.user).get(alert.constraint, ""))

    @plain_column("message")
    def headline(self, alert: Alert) -> str:
        hidden = masking.is_hidden()
        text = masking.name_of(alert) if hidden else shortened(headline_of(alert), 500)
        return inline(text)

    @content_column("message", "message")
    def detail(self, alert: Alert) -> str:
        """Show the technical message of an alert about the constraint itself."""
        return inline(alert.message)

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

    @plain_column("user, constraint and age")
    def about(self, alert: Alert) -> str:
        """Show whose alert it is, what found it, how old and how urgent it is, and who has it."""
        causes = [] if masking.is_hidden() else alert.causes
        owner = format_html("taken by {}", self.owner(alert)) if alert.assigned_to else ""
        facts = [
            link(alert.user),
            *(inline(rule_of(one.constraint)) for one in causes),
            format_html("opened {} ago", ago(alert.opened_at)),
            *(show_escalation(alert), owner),
        ]
        return format_html_join(" ", "<span>{}</span>", ((one,) for one in facts if one))

    @plain_column("owner")
    def owner(self, alert: Alert) -> str:
        return inline(alert.assigned_to) if alert.assigned_to else "nobody"

    @plain_column("opened")
    def opened_here(self, alert: Alert) -> str:
        return format_html(
            "{} ({} ago)", local_time(alert.opened_at, alert.user), ago(alert.opened_at)
        )

    @plain_column("escalates")
    def due(self, alert: Alert) -> str:
        """Show when the alert escalates or, while it is snoozed, when the snooze ends."""
        if alert.snoozed_until:
            return f"snoozed until {local_time(alert.snoozed_until, alert.user)}"
        if alert.escalate_at:
            return local_time(alert.escalate_at, alert.user)
        if alert.escalated_at:
            return f"escalated {local_time(alert.escalated_at, alert.user)}"
        return "no"

    workspace = column("user.workspace", link, "workspace", plain=True)

    @plain_column("useful alerts")
    def verdicts(self, alert: Alert) -> str:
        """Show how precise the alert's constraint has been in the alert's workspace."""
        useful = getattr(alert, "useful_verdicts", None) or 0
        return describe_precision(Precision(useful, getattr(alert, "wrong_verdicts", None) or 0))

    @plain_column("paused")
    def pause(self, alert: Alert) -> str:
        """Say for whom the alert's constraint is paused, with a link to where it is resumed."""
        row = PausedConstraint.objects.filter(user=alert.user, constraint=alert.constraint).first()
        if row is None or row.resumed_at is not None:
            return "The constraint has been resumed."
        return format_html(
            "For {} alone. {}, or resolve this alert.",
            link(alert.user),
            link(row, "Resume the constraint"),
        )

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
            lambda alert, **by: alert_actions.acknowledge(
                alert, note=note_of(request), is_undo="undo" in request.POST, **by
            ),
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

    @admin.action(description="Snooze the selected alerts until…", permissions=["operate"])
    def snooze_until(
        self, request: HttpRequest, queryset: QuerySet[Alert]
    ) -> TemplateResponse | None:
        """Snooze the alerts until a moment that the form, or else a page of its own, asks for."""
        if "until" not in request.POST:
            return _ask_about(request, queryset, "snooze_until", "Snooze")
        try:
            # The browser names the reader's time zone.
            zone = request.POST.get("zone") or "UTC"
            validate_time_zone(zone)
            until = instants.span_in(zone, request.POST["until"]).last
        except ValidationError:
            messages.error(request, f"Nothing was done: the time zone {zone} is not known here.")
            return None
        except instants.BadMoment:
            messages.error(request, "Nothing was done: choose a day and a time.")
            return None
        try:
            self._snooze(request, queryset, until)
        except alert_actions.SnoozeRefused as error:
            messages.error(request, f"Nothing was done: {error}")
        return None

    @admin.action(description="Reopen the selected alerts", permissions=["operate"])
    def reopen(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.reopen(
                alert, note=note_of(request), is_undo="undo" in request.POST, **by
            ),
            verb="reopened",
        )

    @admin.action(description="Resolve the selected alerts…", permissions=["operate"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Alert]) -> TemplateResponse | None:
        """Ask for confirmation, then resolve the alerts.

        If the constraint keeps reporting the same unchanged finding, no new alert is opened.
        """
        if not self.is_confirmed(request, "resolve", queryset):
            return _ask_about(request, queryset, "resolve", "Resolve")
        reason = note_of(request, "resolved by staff")
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.resolve(alert, reason=reason, **by),
            verb="resolved",
        )
        return None

    @admin.action(description="Add a note to the selected alerts…", permissions=["operate"])
    def add_note(self, request: HttpRequest, queryset: QuerySet[Alert]) -> TemplateResponse | None:
        """Add a note to the alerts' histories; their states stay as they are."""
        if not (note := note_of(request)):
            return _ask_about(request, queryset, "add_note", "Add note")
        self._do(
            request,
            queryset,
            lambda alert, **by: alert_actions.add_note(alert, note=note, **by),
            verb="noted",
        )
        return None

    @admin.action(description="Take the selected alerts", permissions=["operate"])
    def take(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Record that the staff member takes care of these alerts."""
        self._assign(request, queryset, request.user.get_username(), "taken")

    @admin.action(description="Release the selected alerts", permissions=["operate"])
    def release(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        """Record that nobody takes care of these alerts."""
        self._assign(request, queryset, "", "released")

    def _assign(self, request: HttpRequest, queryset: QuerySet[Alert], to: str, verb: str) -> None:
        self._do(
            request,
            queryset.exclude(assigned_to=to),
            lambda alert, **by: alert_actions.assign(alert, to=to, **by),
            chosen=queryset,
            verb=verb,
        )

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
        undo, before = UNDO.get(verb, ("", None))
        done, undoable = 0, []
        for alert in fitting:
            with suppress(alert_actions.AlertNotOpen):
                changed = act(alert, actor=staff_of(request))
                done += 1
                # Resolving the notice of a pause has resumed the constraint: it can't be reopened.
                is_final = changed.state == AlertState.RESOLVED and not changed.holds_back
                if alert.state == before and not is_final:
                    undoable.append(alert)
        left = WHY_LEFT.get(verb, "already resolved")
        report(request, "alert", done, number, verb, left, undo=undo, undoable=undoable)


def _ask_about(
    request: HttpRequest, chosen: QuerySet[Alert], action: str, verb: str
) -> TemplateResponse | None:
    """Return a page that lists the alerts, or None if there are too many of them."""
    rows = list(chosen.select_related("user__workspace")[: MAX_LISTED + 1])
    if len(rows) > MAX_LISTED:
        messages.error(request, f"Nothing was done: select at most {MAX_LISTED} alerts.")
        return None
    return ask(
        request,
        action,
        rows,
        Alert,
        title=f"{verb} {counted(len(rows), 'alert')}?",
        verb=verb,
        shown=lines(format_html("{} for {}", link_to_alert(one), link(one.user)) for one in rows),
        resumes=any(one.kind == AlertKind.CONSTRAINT_PAUSED for one in rows),
    )
