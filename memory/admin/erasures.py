"""User erasures: the action that requests one, and the screen for past ones."""

from collections.abc import Sequence

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from memory.admin.actions import ask, confirmed_reason, staff_of
from memory.admin.base import WorkAdmin
from memory.admin.display import badge, counted, inline, lines
from memory.admin.filters import PresenceFilter
from memory.admin.links import link
from memory.models import MemoryUser, UserErasure
from memory.privacy import user_erasure
from memory.users import UserMerged

# Maximum number of users that can be erased at once; the confirmation page lists them all.
MAX_CHOSEN = 50


def erase_chosen(
    request: HttpRequest, chosen: QuerySet[MemoryUser], action: str
) -> TemplateResponse | None:
    """Show the users to erase and ask for a reason; once confirmed, erase them.

    Erasure is irreversible, so staff confirm it by typing the user's id or, for several users, how
    many there are.
    """
    users = _users(chosen)
    if len(users) > MAX_CHOSEN:
        messages.error(request, f"Nothing was done: select at most {MAX_CHOSEN} users.")
        return None
    if not (reason := confirmed_reason(request)):
        return _question(request, users, action)
    if not is_typed(request, chosen):
        messages.error(request, f"Nothing was done: to confirm, type {_to_type(users)}.")
        return _question(request, users, action)
    for user in users:
        try:
            row = user_erasure.ask(user, by=staff_of(request), reason=reason)
        except (user_erasure.ErasureRefused, UserMerged) as error:
            messages.error(request, f"Nothing was done for {user}. {error}")
            continue
        StaffAction.objects.create(
            user_id=int(str(request.user.pk)),
            content_type=ContentType.objects.get_for_model(row),
            object_id=str(row.pk),
            object_repr=str(row),
            action_flag=CHANGE,
            change_message="Erased a user.",  # omit the reason, which not everyone may see
        )
        messages.success(request, format_html("The user was erased: {}", link(row)))
    return None


def _to_type(users: Sequence[MemoryUser]) -> str:
    return "the user's id" if len(users) == 1 else "the number of users"


def is_typed(request: HttpRequest, chosen: QuerySet[MemoryUser]) -> bool:
    """Return whether the typed text confirms erasing these users."""
    users, typed = _users(chosen), request.POST.get("typed", "").strip()
    return typed == (users[0].user_id if len(users) == 1 else str(len(users)))


def _users(chosen: QuerySet[MemoryUser]) -> list[MemoryUser]:
    return list(chosen.order_by("user_id")[: MAX_CHOSEN + 1])


def _question(request: HttpRequest, users: list[MemoryUser], action: str) -> TemplateResponse:
    return ask(
        request,
        action,
        users,
        MemoryUser,
        title="Erase users permanently",
        verb="Erase",
        for_good=True,
        to_type=_to_type(users),
        people=[
            {
                "user": link(user),
                "workspace": inline(user.workspace.name),
                "entries": counted(user.last_seq, "entry"),
                "alerts": counted(user.alerts.listed().count(), "alert"),
            }
            for user in users
        ],
    )


class StateFilter(PresenceFilter):
    """A list filter that separates erasures in progress from finished ones."""

    title = "state"
    parameter_name = "state"
    field, filled, empty = "due_at", "under way", "done"


@admin.register(UserErasure)
class UserErasureAdmin(WorkAdmin[UserErasure]):
    """Erasure records: who requested them, why, and how many rows were erased."""

    list_display = ["created_at", "user_name", "workspace", "how_far", "wanted_by"]
    list_display_links = ["created_at", "user_name"]
    list_filter = [
        StateFilter,
        ("created_at", admin.DateFieldListFilter),
        "user__workspace",
    ]
    list_select_related = ["user__workspace"]
    search_fields = ["=user__public_id", "=id", "by", "reason"]
    search_help_text = (
        "Search by the user's public id, or by the erasure's id, requester or reason."
    )
    ordering = ["-created_at", "-id"]
    when_empty = "No user has been erased yet."
    fieldsets = [
        (None, {"fields": ["user_name", "workspace", "how_far", "by", "reason", "created_at"]}),
        ("What was deleted", {"fields": ["finished_at", "log", "numbers"]}),
        (
            "Work status",
            {
                "classes": ["collapse"],
                "fields": ["waits_for", "attempts", "run_after", "error"],
            },
        ),
    ]

    @admin.display(description="user")
    def user_name(self, row: UserErasure) -> str:
        """Show the user's public id, which also identifies the user in backups."""
        return inline(str(row.user.public_id))

    @admin.display(description="workspace", ordering="user__workspace__name")
    def workspace(self, row: UserErasure) -> str:
        """Link to the workspace."""
        return link(row.user.workspace)

    @admin.display(description="state", ordering="due_at")
    def how_far(self, row: UserErasure) -> str:
        """Show whether everything has been erased."""
        if row.due_at is None:
            return badge("done")
        return badge("failing") if row.last_error else badge("working", "under way")

    @admin.display(description="by", ordering="by")
    def wanted_by(self, row: UserErasure) -> str:
        """Show who requested the erasure."""
        return inline(row.by)

    @admin.display(description="the log")
    def log(self, row: UserErasure) -> str:
        """Show the log's length and its newest hash, which verifies the whole log."""
        return lines(
            [
                f"{counted(row.user.last_seq, 'entry')}, without content",
                f"newest hash {bytes(row.user.last_hash).hex()}",
            ]
        )

    @admin.display(description="rows")
    def numbers(self, row: UserErasure) -> str:
        """Show how many rows of each kind were erased."""
        return lines(
            inline(f"{name.replace('_', ' ')}: {number}")
            for name, number in sorted(row.counts.items())
        )

    @admin.display(description="waiting for these sandbox hosts")
    def waits_for(self, row: UserErasure) -> str:
        """List the hosts that have not yet confirmed that they hold no data about the user."""
        return lines(map(inline, row.hosts))
