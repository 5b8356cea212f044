"""Users and the lanes in which their memory is worked on."""

from collections.abc import Collection
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.contenttypes.models import ContentType
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.forms import JSONField, ModelForm
from django.http import HttpRequest
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from memory import backtests, feedback, forecasts, lanes, llm_calls, log
from memory.admin.base import (
    MemoryAdmin,
    PresenceFilter,
    ReadOnlyAdmin,
    heavy,
    link,
    link_to_list,
    staff_of,
)
from memory.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    lines,
    preformatted,
    shortened,
    visible,
    visible_json,
)
from memory.admin.log import PENDING
from memory.models import (
    Alert,
    AlertFeedback,
    Checkpoint,
    EntryOutcome,
    Forecast,
    Lane,
    LlmCall,
    LogEntry,
    MemoryUser,
    RecordLocation,
    Run,
    Workspace,
)
from memory.models.alerts import LIVE_STATES
from memory.models.log import Outcome
from memory.models.users import LaneName
from memory.users import change_user

# So many events to come are listed.
FORESEEN = 20


def _number_of(rows: QuerySet[Any]) -> Coalesce:
    """Count the rows of each user in a subquery of its own: joins would multiply each other."""
    counts = rows.filter(user=OuterRef("pk")).order_by().values("user").annotate(number=Count("*"))
    return Coalesce(Subquery(counts.values("number")), 0, output_field=IntegerField())


class VisibleJSONField(JSONField):
    """JSON to edit: characters that would steer the page are escapes, as JSON allows them."""

    def prepare_value(self, value: Any) -> Any:
        """Return the text for the form."""
        return visible_json(super().prepare_value(value))


@admin.register(MemoryUser)
class MemoryUserAdmin(MemoryAdmin[MemoryUser]):
    """The people remembered: what is known, what waits, what was found."""

    list_display = [
        "user_id",
        "workspace",
        "alerts",
        "entries",
        "pending",
        "rejected",
        "version",
        "created_at",
    ]
    list_filter = ["workspace", ("created_at", admin.DateFieldListFilter)]
    list_select_related = ["workspace", "head"]
    search_fields = ["user_id", "=public_id"]
    search_help_text = "By user id or public id."
    ordering = ["-created_at"]
    actions = ["work_on_it_now", "backtest_constraints"]
    when_empty = "The products' backends have not created a user yet."
    fieldsets = [
        (None, {"fields": ["user_id", "workspace", "time_zone", "metadata"]}),
        ("What was found", {"fields": ["alerts", "past_alerts", "constraints", "foreseen"]}),
        (
            "What was logged",
            {"fields": ["entries", ("covered", "pending", "dismissed", "rejected")]},
        ),
        (
            "What it became",
            {
                "fields": [
                    "structure",
                    "calls",
                    "version",
                    "checkpoints",
                    "locations",
                    "runs",
                    "lanes",
                ]
            },
        ),
        ("More", {"fields": ["public_id", "created_at", "constraints_due_at"]}),
    ]
    readonly_fields = [
        "user_id",
        "workspace",
        "alerts",
        "past_alerts",
        "constraints",
        "foreseen",
        "entries",
        "covered",
        "pending",
        "dismissed",
        "rejected",
        "structure",
        "calls",
        "version",
        "checkpoints",
        "locations",
        "runs",
        "lanes",
        "public_id",
        "created_at",
        "constraints_due_at",
    ]

    def actions_for(self, row: MemoryUser) -> Collection[str]:
        """Where nothing waits there is nothing to work on, and nothing to test without a rule."""
        waits = _waiting_lanes().filter(user=row).exists()
        return [
            *(["work_on_it_now"] if waits else []),
            *(["backtest_constraints"] if backtests.own_constraints(row.head) else []),
        ]

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Who may approve constraints, and have them backtested."""
        return request.user.has_perm("memory.approve_workspaceconstraint")

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryUser]:
        """Count the live alerts and the outcomes along."""
        return (
            super()
            .get_queryset(request)
            .defer(*heavy("head"))
            .annotate(
                live_alerts=_number_of(Alert.objects.filter(state__in=LIVE_STATES)),
                rejected_entries=_number_of(EntryOutcome.objects.filter(outcome=Outcome.REJECTED)),
                pending_entries=F("last_seq") - _number_of(EntryOutcome.objects.all()),
            )
        )

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Edit the metadata as JSON in which nothing hides."""
        if db_field.name == "metadata":
            kwargs["form_class"] = VisibleJSONField
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Users come from the product's backend."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Users are erased, not deleted."""
        return False

    def save_model(
        self, request: HttpRequest, obj: MemoryUser, form: ModelForm[MemoryUser], change: bool
    ) -> None:
        """Store what was changed, and move the daily run with the time zone."""
        change_user(obj, **{name: form.cleaned_data[name] for name in form.changed_data})

    def log_change(self, request: HttpRequest, obj: MemoryUser, message: Any) -> StaffAction:
        """Note who changed it under the public id: an erased person's name must not stay here."""
        return StaffAction.objects.create(
            user_id=int(str(request.user.pk)),
            content_type=ContentType.objects.get_for_model(obj),
            object_id=str(obj.pk),
            object_repr=f"user {obj.public_id}",
            action_flag=CHANGE,
            change_message=message,
        )

    @admin.display(description="language model")
    def structure(self, user: MemoryUser) -> SafeString:
        """Say whether the language model works on what was said, and if not, why."""
        found = lanes.standing(user)
        told = [f"{counted(found.waiting, 'entry')} waiting"] if found.waiting else []
        if found.until is not None:
            until = date_format(localtime(found.until), "DATETIME_FORMAT")
            again = found.state == lanes.State.STOPPED
            told.append(f"tried again at {until}" if again else f"work begins at {until}")
        return format_html(
            "{} {}{}",
            badge(found.state),
            "; ".join(told),
            format_html("<div>{}</div>", inline(shortened(found.reason, 500)))
            if found.reason
            else "",
        )

    @admin.display(description="newest version")
    def version(self, user: MemoryUser) -> str:
        """Lead to the head."""
        return link(user.head, f"v{user.head.version}" if user.head else None)

    @admin.display(description="live alerts", ordering="live_alerts")
    def alerts(self, user: MemoryUser) -> str:
        """Lead to the alerts that are not resolved."""
        number = getattr(user, "live_alerts", 0)
        if not number:
            return "none"
        return link_to_list(
            Alert,
            counted(number, "alert"),
            user__id__exact=user.pk,
            state__in=",".join(LIVE_STATES),
        )

    @admin.display(description="all alerts")
    def past_alerts(self, user: MemoryUser) -> str:
        """Lead to the alerts, the resolved ones too."""
        number = user.alerts.count()
        return link_to_list(Alert, counted(number, "alert"), user__id__exact=user.pk)

    @admin.display(description="constraints")
    def constraints(self, user: MemoryUser) -> str:
        """Name the constraints: how far each is trusted, and which are paused."""
        judged = feedback.by_constraint(AlertFeedback.objects.filter(alert__user=user))
        paused = {row.constraint: row for row in user.paused_constraints.filter(resumed_at=None)}
        paths = [path for path in user.head.tree if _is_constraint(path)] if user.head else []
        return lines(
            format_html(
                "{} {} {}",
                inline(path),
                feedback.in_words(judged.get(path, feedback.UNJUDGED)),
                link(paused[path], "paused") if path in paused else "",
            )
            for path in sorted({*paths, *paused})
        )

    @admin.display(description="foreseen")
    def foreseen(self, user: MemoryUser) -> str:
        """List what opens, changes and resolves next if nothing happens, and when."""
        forecast = Forecast.objects.filter(user=user).defer("results").first()
        if forecast is None or forecast.start is None or forecast.known_until is None:
            return "nothing was looked ahead at yet"
        events = forecasts.coming(forecast, user.alerts_instant or forecast.start)
        told = [
            format_html(
                "{} {} {}: {} {}",
                one["day"] or one["at"][:16].replace("T", " "),
                badge(one["severity"]) if one["severity"] else "",
                one["kind"],
                inline(one["constraint"]),
                inline(shortened(one["error"] or one["key"] or ", ".join(one["records"]), 200)),
            )
            for one in events[:FORESEEN]
        ]
        more = len(events) - len(told)
        end = date_format(localtime(forecast.known_until), "DATE_FORMAT")
        last = f"{counted(more, 'event')} more until {end}" if more else f"nothing more until {end}"
        return lines([*told, format_html("{}", last)])

    @admin.display(description="log", ordering="last_seq")
    def entries(self, user: MemoryUser) -> str:
        """Lead to the log."""
        return _entries(user, user.last_seq)

    @admin.display(description="pending", ordering="pending_entries")
    def pending(self, user: MemoryUser) -> str:
        """Lead to the entries that nothing has become of yet."""
        number = getattr(user, "pending_entries", 0)
        return _entries(user, number, outcome=PENDING) if number else "0"

    @admin.display(description="rejected", ordering="rejected_entries")
    def rejected(self, user: MemoryUser) -> str:
        """Lead to what the gate refused, and why."""
        return _outcomes(user, Outcome.REJECTED, getattr(user, "rejected_entries", 0))

    @admin.display(description="covered")
    def covered(self, user: MemoryUser) -> str:
        """Lead to what is in the project."""
        return _outcomes(user, Outcome.COVERED, log.coverage(user).covered)

    @admin.display(description="dismissed")
    def dismissed(self, user: MemoryUser) -> str:
        """Lead to what was found to say nothing lasting."""
        return _outcomes(user, Outcome.DISMISSED, log.coverage(user).dismissed)

    @admin.display(description="versions")
    def checkpoints(self, user: MemoryUser) -> str:
        """Lead to the versions."""
        number = user.checkpoints.count()
        return link_to_list(Checkpoint, counted(number, "version"), user__id__exact=user.pk)

    @admin.display(description="records")
    def locations(self, user: MemoryUser) -> str:
        """Lead to the places of the records."""
        number = user.locations.filter(retired_version=None).count()
        return link_to_list(
            RecordLocation,
            counted(number, "record"),
            user__id__exact=user.pk,
            retired="no",
        )

    @admin.display(description="model calls")
    def calls(self, user: MemoryUser) -> str:
        """Lead to the calls of language models, and say what they took."""
        sums = user.llm_calls.aggregate(sent=Sum("input_tokens"), received=Sum("output_tokens"))
        tokens = (sums["sent"] or 0) + (sums["received"] or 0)
        text = f"{counted(user.llm_calls.count(), 'call')}, {tokens:,} tokens"
        return link_to_list(LlmCall, text, user__id__exact=user.pk)

    @admin.display(description="runs")
    def runs(self, user: MemoryUser) -> str:
        """Lead to the runs."""
        return link_to_list(Run, counted(user.runs.count(), "run"), user__id__exact=user.pk)

    @admin.display(description="work")
    def lanes(self, user: MemoryUser) -> str:
        """Lead to the lanes."""
        return link_to_list(Lane, counted(user.lanes.count(), "lane"), user__id__exact=user.pk)

    @admin.action(description="Backtest the users' own constraints", permissions=["approve"])
    def backtest_constraints(self, request: HttpRequest, queryset: QuerySet[MemoryUser]) -> None:
        """Run each constraint of the newest version over the user's history."""
        for user in queryset:
            paths = backtests.own_constraints(user.head)
            started = [backtests.start_own(user, path, by=staff_of(request)) for path in paths]
            for backtest in started:
                messages.success(request, format_html("Started: {}", link(backtest)))
            if not started:
                messages.warning(request, f"{visible(user.user_id)} has no constraint.")

    @admin.action(
        description="Have the language model work on the selected users now", permissions=["change"]
    )
    def work_on_it_now(self, request: HttpRequest, queryset: QuerySet[MemoryUser]) -> None:
        """Wait no longer for more entries, or after a failure; the dispatcher gives it out."""
        chosen = list(queryset.filter(pk__in=_waiting_lanes().values("user")))
        left = queryset.count() - len(chosen)
        lanes.hurry(_waiting_lanes().filter(user__in=chosen))
        for user in chosen:
            self.log_change(request, user, "Language model told to work now.")
        if chosen:
            messages.success(request, f"{counted(len(chosen), 'user')} will be worked on now.")
        workspaces = Workspace.objects.filter(users__in=chosen).distinct()
        for reason in {llm_calls.why_stopped(workspace) for workspace in workspaces} - {None}:
            messages.warning(request, f"The work is stopped: {reason}")
        if left:
            messages.warning(request, f"{counted(left, 'user')} left: nothing waits.")


def _is_constraint(path: str) -> bool:
    return path.startswith("constraints/") and not path.endswith("/__init__.py")


def _waiting_lanes() -> QuerySet[Lane]:
    return Lane.objects.filter(name=LaneName.STRUCTURE, due_at__isnull=False)


def _entries(user: MemoryUser, number: int, **filters: str) -> SafeString:
    text = counted(number, "entry")
    return link_to_list(LogEntry, text, user__id__exact=user.pk, **filters)


def _outcomes(user: MemoryUser, outcome: Outcome, number: int) -> SafeString | str:
    if not number:
        return "0"
    return link_to_list(
        EntryOutcome,
        counted(number, "entry"),
        user__id__exact=user.pk,
        outcome__exact=outcome,
    )


class DueFilter(PresenceFilter):
    """Lanes in which something waits, or nothing does."""

    title = "whether work waits"
    parameter_name = "due"
    field, filled, empty = "due_at", "work waits", "nothing waits"


@admin.register(Lane)
class LaneAdmin(ReadOnlyAdmin[Lane]):
    """Pending work: since when, who is at it, and what went wrong."""

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
    search_help_text = "By user id."
    ordering = [F("due_at").asc(nulls_last=True), "id"]
    actions = ["try_now"]
    when_empty = "There is no user yet."
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
        ("Tries", {"fields": ["attempts", "run_after", "error"]}),
        (
            "Worker",
            {"fields": ["lease_owner", "lease_expires_at", "token", "hinted_at"]},
        ),
    ]

    def actions_for(self, row: Lane) -> Collection[str]:
        """Where nothing waits there is nothing to try."""
        return ["try_now"] if row.due_at else []

    @admin.display(description="work", ordering="name")
    def work(self, lane: Lane) -> str:
        """Name the kind of work."""
        return lane.get_name_display()

    @admin.display(description="user", ordering="user__user_id")
    def user_link(self, lane: Lane) -> str:
        """Lead to the user."""
        return link(lane.user)

    @admin.display(description="state")
    def standing(self, lane: Lane) -> str:
        """Say whether work waits, is being done, or keeps failing."""
        if lane.lease_owner:
            return badge("running", "being worked on")
        if lane.due_at is None:
            return badge("idle")
        return badge("failing") if lane.attempts else badge("waiting")

    @admin.display(description="done up to")
    def done_to(self, lane: Lane) -> str:
        """Name the entry up to which nothing waits in this lane."""
        return f"#{lane.cursor_seq}"

    @admin.display(description="last error")
    def trouble(self, lane: Lane) -> str:
        """Show the beginning of the last error."""
        return inline(shortened(lane.last_error)) if lane.last_error else NOTHING

    @admin.display(description="last error")
    def error(self, lane: Lane) -> str:
        """Show the last error."""
        return preformatted(lane.last_error)

    @admin.action(description="Try the selected work again now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Lane]) -> None:
        """Forget the wait after failures; the dispatcher takes the work at its next tick."""
        chosen = queryset.count()
        number = lanes.hurry(queryset)
        if number:
            messages.success(request, f"{counted(number, 'lane')} will be tried again now.")
        if number < chosen:
            messages.warning(request, f"{counted(chosen - number, 'lane')} left: nothing waits.")
