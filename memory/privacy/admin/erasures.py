"""User erasures: the action that requests one, and the screen for past ones."""

from collections.abc import Sequence

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from memory.kernel.admin.actions import ask, confirmed_reason, staff_of
from memory.kernel.admin.base import section
from memory.kernel.admin.columns import column, content_column, plain_column
from memory.kernel.admin.display import counted, inline, lines
from memory.kernel.admin.links import link
from memory.kernel.admin.tables import WorkAdmin
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import recent_sign_in
from memory.kernel.users import UserMerged
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure

# Maximum number of users that can be erased at once; the confirmation page lists them all.
MAX_CHOSEN = 50


def erase_chosen(
    request: HttpRequest, chosen: QuerySet[MemoryUser], action: str
) -> TemplateResponse | None:
    """Show the users to erase and ask for a reason; once confirmed, erase them.

    Erasure is irreversible, so staff confirm it by typing the user's id or, for several users, how
    many there are, and must have proved recently who they are.
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
    recent_sign_in.require(request)
    for user in users:
        try:
            row = user_erasure.ask(user, by=staff_of(request), reason=reason)
        except (user_erasure.ErasureRefused, UserMerged) as error:
            messages.error(request, f"Nothing was done for {user}. {error}")
            continue
        # The message omits the reason, which not everyone may see.
        by = int(str(request.user.pk))
        StaffAction.objects.log_actions(by, [row], CHANGE, "Erased a user.", single_object=True)
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


@admin.register(UserErasure)
class UserErasureAdmin(WorkAdmin[UserErasure]):
    """Erasure records: who requested them, why, and how many rows were erased."""

    list_display = ["created_at", "user_name", "workspace", "state", "by"]
    list_display_links = ["created_at", "user_name"]
    list_select_related = ["user__workspace"]
    search_fields = ["=user__public_id", "=id", "by", "reason"]
    search_help_text = (
        "Search by the user's public id, or by the erasure's id, requester or reason."
    )
    when_empty = "No user has been erased yet."
    fieldsets = [
        section(None, "user_name", "workspace", "state", "by", "reason", "created_at"),
        section("What was deleted", "finished_at", "log", "numbers", "waits_for"),
    ]

    workspace = column("user.workspace", link, "workspace", "user__workspace__name", plain=True)

    @plain_column("user")
    def user_name(self, row: UserErasure) -> str:
        """Show the user's public id, which also identifies the user in backups."""
        return inline(str(row.user.public_id))

    @plain_column("the log")
    def log(self, row: UserErasure) -> str:
        """Show the log's length and its newest hash, which verifies the whole log."""
        return lines(
            [
                f"{counted(row.user.last_seq, 'entry')}, without content",
                f"newest hash {bytes(row.user.last_hash).hex()}",
            ]
        )

    @content_column("rows")
    def numbers(self, row: UserErasure) -> str:
        return lines(
            inline(f"{name.replace('_', ' ')}: {number}")
            for name, number in sorted(row.counts.items())
        )

    @content_column("waiting for these sandbox hosts")
    def waits_for(self, row: UserErasure) -> str:
        """List the hosts that have not yet confirmed that they hold no data about the user."""
        return lines(map(inline, row.hosts))
