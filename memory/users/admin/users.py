"""The admin screen for users, and the actions that staff may take on a user's memory."""

from collections.abc import Collection
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.contenttypes.models import ContentType
from django.db.models import (
    BooleanField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    Model,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Coalesce
from django.forms import JSONField, ModelForm
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.alerts.models.alerts import LIVE_STATES, Alert, PausedConstraint
from memory.constraints import backtests
from memory.constraints.admin import own_constraints
from memory.kernel import pauses
from memory.kernel.admin import masking
from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import content_column, plain_column, row_column
from memory.kernel.admin.display import (
    NOTHING,
    badge,
    counted,
    inline,
    visible,
    visible_json,
)
from memory.kernel.admin.links import link, link_to_list
from memory.kernel.admin.pauses import pause_of
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import change_user
from memory.llm import llm_budgets, track_records
from memory.llm.models import LlmCall
from memory.log import lanes
from memory.log.admin.entries import PENDING
from memory.log.models.documents import Document
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome
from memory.log.models.merges import Merge
from memory.privacy.admin.erasures import erase_chosen, is_typed
from memory.users.admin import timeline
from memory.users.admin.pages import UserPages
from memory.users.admin.sections import (
    show_constraints,
    show_forecast,
    show_merges,
    show_model_work,
)
from memory.versions.models.checkpoints import Checkpoint, RecordLocation
from memory.versions.models.runs import Run


def _number_of(rows: QuerySet[Any]) -> Coalesce:
    """Return a subquery that counts a user's rows, since joins would multiply the counts."""
    counts = rows.filter(user=OuterRef("pk")).order_by().values("user").annotate(number=Count("*"))
    return Coalesce(Subquery(counts.values("number")), 0, output_field=IntegerField())


class VisibleJSONField(JSONField):
    """An editable JSON field that escapes characters that could alter the page."""

    def prepare_value(self, value: Any) -> Any:
        return visible_json(super().prepare_value(value))


@admin.register(MemoryUser)
class MemoryUserAdmin(UserPages):
    """Users: what is known about them, the work pending for them, and their alerts."""

    labels = {"head": "newest version"}

    list_display = [
        "user_id",
        "called",
        "workspace",
        "alerts",
        "stopped",
        "entries",
        "pending",
        "rejected",
        "head",
        "created_at",
    ]
    list_filter = ["workspace", "created_at"]
    list_select_related = ["workspace", "head"]
    large_of_related = ["head__tree", "head__outline"]
    search_fields = ["user_id", "=public_id", "metadata"]
    search_help_text = "Search by user id, public id or metadata, such as a name."
    ordering = ["-created_at"]
    large = ["metadata"]  # for the name
    actions = ["work_on_it_now", "backtest_constraints", "pause", "resume", "erase"]
    asking = ["pause", "erase"]
    dangerous = ["erase"]
    when_empty = "No user has been created yet."
    fieldsets = [
        section("Alerts", "alerts", "past_alerts", "constraints", "foreseen"),
        section(
            "Name, time zone and metadata",
            *("user_id", "called", "workspace", "time_zone", "metadata", "paused", "merges"),
            collapsed=True,
        ),
        section(
            "Log and project",
            *("entries", ("covered", "pending", "dismissed", "rejected"), "documents"),
            *("structure", "calls"),
            *("head", "checkpoints", "project", "locations", "runs", "lanes"),
            *("public_id", "created_at", "constraints_due_at"),
            collapsed=True,
        ),
    ]
    readonly_fields = [
        name for name in flatten_fieldsets(fieldsets) if name not in ("time_zone", "metadata")
    ]

    merges = row_column(show_merges, "merged", plain=True)
    structure = row_column(show_model_work, "language model")
    foreseen = row_column(show_forecast, "forecast")

    def is_confirmed(self, request: HttpRequest, action: str, rows: QuerySet[MemoryUser]) -> bool:
        """For an erasure, also require the user's id or the number of users to be typed."""
        sure = super().is_confirmed(request, action, rows)
        return sure and (action != "erase" or is_typed(request, rows))

    def actions_for(self, row: MemoryUser) -> Collection[str]:
        waits = any(
            lane.name == LaneName.STRUCTURE and lane.due_at for lane in timeline.lanes_of(row)
        )
        return [
            *(["work_on_it_now"] if waits and pause_of(row) is None else []),
            *(["backtest_constraints"] if backtests.own_constraints(row.head) else []),
            *self.pausing_for(row),
            "erase",
        ]

    def has_erase_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.erase_memoryuser")

    @admin.action(description="Erase the selected users…", permissions=["erase"])
    def erase(
        self, request: HttpRequest, queryset: QuerySet[MemoryUser]
    ) -> TemplateResponse | None:
        return erase_chosen(request, queryset, "erase")

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryUser]:
        newest = LogEntry.objects.filter(user=OuterRef("pk"), seq=OuterRef("last_seq")).order_by()
        return (
            super()
            .get_queryset(request)
            .select_related("workspace", "head")
            .annotate(
                live_alerts=_number_of(Alert.objects.listed().live()),
                rejected_entries=_number_of(EntryOutcome.objects.filter(outcome=Outcome.REJECTED)),
                pending_entries=F("last_seq") - _number_of(EntryOutcome.objects.all()),
                # These are needed only on the user's own page, but they're cheap in lists too:
                # unless a list is sorted by such a column, the database computes it only for the
                # rows shown.
                all_alerts=_number_of(Alert.objects.listed()),
                all_documents=_number_of(Document.objects.all()),
                all_versions=_number_of(Checkpoint.objects.all()),
                all_runs=_number_of(Run.objects.all()),
                records=_number_of(RecordLocation.objects.filter(retired_version=None)),
                last_heard_at=Subquery(newest.values("recorded_at")),
                has_merged=Exists(Merge.objects.filter(user=OuterRef("pk"))),
                is_paused=ExpressionWrapper(
                    pauses.are_paused("pk", "workspace"), output_field=BooleanField()
                ),
                paused_rules=_number_of(PausedConstraint.objects.filter(resumed_at=None)),
            )
        )

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> MemoryUser | None:
        user = super().get_object(request, object_id, from_field)
        if user is not None:
            user.__dict__["_may_write"] = own_constraints.may_write(request)
            server = settings.UAC_BASE_URL or request.build_absolute_uri("/")
            user.__dict__["_server"] = server.rstrip("/")
        return user

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "metadata":
            kwargs["form_class"] = VisibleJSONField
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: users are created by the product's backend."""
        return False

    def save_model(
        self, request: HttpRequest, obj: MemoryUser, form: ModelForm[MemoryUser], change: bool
    ) -> None:
        """Store the changes; a new time zone also reschedules the user's daily run."""
        change_user(obj, **{name: form.cleaned_data[name] for name in form.changed_data})

    def log_change(self, request: HttpRequest, obj: MemoryUser, message: Any) -> StaffAction:
        """Log the change under the public id: an erased person's name must not stay in the log."""
        return StaffAction.objects.create(
            user_id=int(str(request.user.pk)),
            content_type=ContentType.objects.get_for_model(obj),
            object_id=str(obj.pk),
            object_repr=f"user {obj.public_id}",
            action_flag=CHANGE,
            change_message=message,
        )

    @content_column("name")
    def called(self, user: MemoryUser) -> str:
        """Show the name from the metadata field that the workspace has chosen."""
        name = masking.person_name(user)
        return inline(name) if name else NOTHING

    @plain_column("live alerts", "live_alerts")
    def alerts(self, user: MemoryUser) -> str:
        number = getattr(user, "live_alerts", 0)
        live = ",".join(LIVE_STATES)
        return _linked(user, Alert, number, "alert", state__in=live) if number else "none"

    @plain_column("paused")
    def stopped(self, user: MemoryUser) -> str:
        """Show what keeps alerts from opening."""
        rules = getattr(user, "paused_rules", 0)
        badges = [badge("paused")] if getattr(user, "is_paused", False) else []
        badges += [badge("paused", counted(rules, "constraint"))] if rules else []
        return format_html_join(" ", "{}", ((one,) for one in badges))

    def bands_of(self, user: MemoryUser) -> list[str]:
        rules = getattr(user, "paused_rules", 0)
        paused = _linked(user, PausedConstraint, rules, "constraint", resumed="no")
        verb = "is" if rules == 1 else "are"
        noisy = [format_html("{} {} paused for being too noisy.", paused, verb)] if rules else []
        return [*super().bands_of(user), *noisy]

    @plain_column("all alerts")
    def past_alerts(self, user: MemoryUser) -> str:
        return _linked(user, Alert, getattr(user, "all_alerts", 0), "alert")

    @content_column("constraints")
    def constraints(self, user: MemoryUser) -> str:
        return show_constraints(user, may_write=user.__dict__.get("_may_write", False))

    @plain_column("log", "last_seq")
    def entries(self, user: MemoryUser) -> str:
        return _linked(user, LogEntry, user.last_seq, "entry")

    @plain_column("documents")
    def documents(self, user: MemoryUser) -> str:
        return _linked(user, Document, getattr(user, "all_documents", 0), "document")

    @plain_column("pending", "pending_entries")
    def pending(self, user: MemoryUser) -> str:
        number = getattr(user, "pending_entries", 0)
        return _linked(user, LogEntry, number, "entry", outcome=PENDING) if number else "0"

    @plain_column("rejected", "rejected_entries")
    def rejected(self, user: MemoryUser) -> str:
        return _outcomes(user, Outcome.REJECTED, getattr(user, "rejected_entries", 0))

    @plain_column("covered")
    def covered(self, user: MemoryUser) -> str:
        return _outcomes(user, Outcome.COVERED, timeline.coverage_of(user).covered)

    @plain_column("dismissed")
    def dismissed(self, user: MemoryUser) -> str:
        return _outcomes(user, Outcome.DISMISSED, timeline.coverage_of(user).dismissed)

    @plain_column("versions")
    def checkpoints(self, user: MemoryUser) -> str:
        return _linked(user, Checkpoint, getattr(user, "all_versions", 0), "version")

    @content_column("project")
    def project(self, user: MemoryUser) -> str:
        """Say how the project is cloned."""
        address = f"/v1/users/{quote(user.user_id, safe='')}/git"
        server = user.__dict__.get("_server", "")
        return format_html("git clone <code>{}{}</code>", server, address)

    @plain_column("records")
    def locations(self, user: MemoryUser) -> str:
        number = getattr(user, "records", 0)
        return _linked(user, RecordLocation, number, "record", retired="no")

    @plain_column("model calls")
    def calls(self, user: MemoryUser) -> str:
        _, spent = timeline.spent_on(user)
        text = f"{counted(spent.calls, 'call')}, {spent.tokens:,} tokens"
        return link_to_list(LlmCall, text, user__id__exact=user.pk)

    @plain_column("runs")
    def runs(self, user: MemoryUser) -> str:
        return _linked(user, Run, getattr(user, "all_runs", 0), "run")

    @plain_column("work")
    def lanes(self, user: MemoryUser) -> str:
        return _linked(user, Lane, len(timeline.lanes_of(user)), "lane")

    @admin.action(description="Backtest the users' own constraints", permissions=["approve"])
    def backtest_constraints(self, request: HttpRequest, queryset: QuerySet[MemoryUser]) -> None:
        for user in queryset:
            paths = backtests.own_constraints(user.head)
            started = [backtests.start_own(user, path, by=staff_of(request)) for path in paths]
            for backtest in started:
                messages.success(request, format_html("Started: {}", link(backtest)))
            if not started:
                messages.warning(
                    request, f"{visible(user.user_id)} has no constraints to backtest."
                )

    @admin.action(
        description="Have the language model process the selected users' entries now",
        permissions=["change"],
    )
    def work_on_it_now(self, request: HttpRequest, queryset: QuerySet[MemoryUser]) -> None:
        """Make the model's waiting work due now, even after failures; the dispatcher starts it."""
        # Annotated by `get_queryset`.
        waiting: QuerySet[Any] = queryset.filter(pk__in=_waiting_lanes().values("user"))
        chosen = list(waiting.filter(is_paused=False))
        paused = waiting.filter(is_paused=True).count()
        left = queryset.count() - len(chosen) - paused
        lanes.hurry(_waiting_lanes().filter(user__in=chosen))
        for user in chosen:
            self.log_change(request, user, "Had the language model process the entries now.")
        if chosen:
            number = counted(len(chosen), "user")
            messages.success(request, f"The entries of {number} will be processed now.")
        workspaces = Workspace.objects.filter(users__in=chosen).distinct()
        reasons = {
            llm_budgets.why_stopped(workspace) or track_records.why_stopped(workspace)
            for workspace in workspaces
        }
        for reason in reasons - {None}:
            messages.warning(request, f"The language model's work is stopped: {reason}")
        if paused:
            why = "paused, so nothing is processed until work is resumed"
            messages.warning(request, f"{counted(paused, 'user')} skipped: {why}.")
        if left:
            messages.warning(request, f"{counted(left, 'user')} skipped: nothing is pending.")


def _waiting_lanes() -> QuerySet[Lane]:
    return Lane.objects.filter(name=LaneName.STRUCTURE, due_at__isnull=False)


def _linked(
    user: MemoryUser, model: type[Model], number: int, noun: str, **filters: str
) -> SafeString:
    """Link to the list of the user's rows, with their number."""
    return link_to_list(model, counted(number, noun), user__id__exact=user.pk, **filters)


def _outcomes(user: MemoryUser, outcome: Outcome, number: int) -> SafeString | str:
    if not number:
        return "0"
    return _linked(user, EntryOutcome, number, "entry", outcome__exact=outcome)
