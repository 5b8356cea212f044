"""Users and the lanes in which their memory is worked on."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone

from memory import log
from memory.admin.base import ReadOnlyAdmin, link, link_to_list
from memory.models import Alert, Checkpoint, EntryOutcome, Lane, LogEntry, MemoryUser, Run
from memory.models.alerts import AlertState
from memory.users import change_user


@admin.register(MemoryUser)
class MemoryUserAdmin(admin.ModelAdmin[MemoryUser]):
    """The people remembered: what is known, what waits, what was found."""

    list_display = ["user_id", "workspace", "version", "entries", "alerts", "created_at"]
    list_filter = ["workspace"]
    list_select_related = ["workspace", "head"]
    search_fields = ["user_id"]
    show_full_result_count = False
    fields = [
        "user_id",
        "workspace",
        "public_id",
        "time_zone",
        "metadata",
        "created_at",
        "version",
        "coverage",
        "entries",
        "alerts",
        "checkpoints",
        "runs",
        "lanes",
        "constraints_due_at",
    ]
    readonly_fields = [
        "user_id",
        "workspace",
        "public_id",
        "created_at",
        "version",
        "coverage",
        "entries",
        "alerts",
        "checkpoints",
        "runs",
        "lanes",
        "constraints_due_at",
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryUser]:
        """Count the live alerts along."""
        live = Count("alerts", filter=~Q(alerts__state=AlertState.RESOLVED))
        return super().get_queryset(request).annotate(live_alerts=live)

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

    @admin.display(description="newest version")
    def version(self, user: MemoryUser) -> str:
        """Lead to the head."""
        return link(user.head, f"v{user.head.version}" if user.head else None)

    @admin.display(description="coverage")
    def coverage(self, user: MemoryUser) -> str:
        """Say what became of the entries."""
        counts = log.coverage(user)
        return (
            f"{counts.total} entries: {counts.covered} covered, {counts.pending} pending,"
            f" {counts.dismissed} dismissed, {counts.rejected} rejected"
        )

    @admin.display(description="log")
    def entries(self, user: MemoryUser) -> str:
        """Lead to the log."""
        return link_to_list(LogEntry, f"{user.last_seq} entries", user__id__exact=user.pk)

    @admin.display(description="live alerts", ordering="live_alerts")
    def alerts(self, user: MemoryUser) -> str:
        """Lead to the alerts."""
        number = getattr(user, "live_alerts", 0)
        return link_to_list(Alert, f"{number} live alerts", user__id__exact=user.pk)

    @admin.display(description="checkpoints")
    def checkpoints(self, user: MemoryUser) -> str:
        """Lead to the versions."""
        return link_to_list(Checkpoint, "all versions", user__id__exact=user.pk)

    @admin.display(description="runs")
    def runs(self, user: MemoryUser) -> str:
        """Lead to the runs."""
        return link_to_list(Run, "all runs", user__id__exact=user.pk)

    @admin.display(description="work")
    def lanes(self, user: MemoryUser) -> str:
        """Lead to the lanes and to what the gate refused."""
        return link_to_list(Lane, "pending work", user__id__exact=user.pk)


@admin.register(Lane)
class LaneAdmin(ReadOnlyAdmin[Lane]):
    """Pending work: since when, who is at it, and what went wrong."""

    list_display = ["user_link", "name", "due_at", "attempts", "lease_owner", "last_error"]
    list_filter = ["name", ("due_at", admin.EmptyFieldListFilter), "user__workspace"]
    list_select_related = ["user"]
    search_fields = ["user__user_id"]
    ordering = ["due_at"]
    actions = ["try_now"]

    @admin.display(description="user")
    def user_link(self, lane: Lane) -> str:
        """Lead to the user."""
        return link(lane.user)

    @admin.action(description="Try the selected work again now", permissions=["operate"])
    def try_now(self, request: HttpRequest, queryset: QuerySet[Lane]) -> None:
        """Forget the wait after failures; the dispatcher takes the work at its next tick."""
        number = queryset.filter(due_at__isnull=False).update(
            run_after=timezone.now(), hinted_at=None
        )
        messages.success(request, f"{number} lanes are due now.")


@admin.register(EntryOutcome)
class EntryOutcomeAdmin(ReadOnlyAdmin[EntryOutcome]):
    """What became of entries; the rejected ones say why."""

    list_display = ["user_link", "entry", "outcome", "version", "reason", "decided_at"]
    list_filter = ["outcome", "user__workspace"]
    list_select_related = ["user", "checkpoint"]
    search_fields = ["user__user_id"]
    ordering = ["-decided_at"]
    fields = ["user_link", "entry", "outcome", "version", "reason", "decided_at"]

    @admin.display(description="user")
    def user_link(self, outcome: EntryOutcome) -> str:
        """Lead to the user."""
        return link(outcome.user)

    @admin.display(description="entry")
    def entry(self, outcome: EntryOutcome) -> str:
        """Lead to the entry."""
        return link_to_list(
            LogEntry, f"#{outcome.seq}", user__id__exact=outcome.user_id, seq=outcome.seq
        )

    @admin.display(description="version")
    def version(self, outcome: EntryOutcome) -> str:
        """Lead to the checkpoint."""
        checkpoint = outcome.checkpoint
        return link(checkpoint, f"v{checkpoint.version}" if checkpoint else None)
