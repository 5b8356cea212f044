"""Reopening entries, as an action of the staff."""

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.display import counted
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome
from memory.versions import reopening
from memory.versions.past_states import BeingRedacted
from memory.versions.reopening import NothingToReopen, Selection, TooManyToReopen


def reopen_chosen(request: HttpRequest, chosen: QuerySet[EntryOutcome]) -> None:
    """Reopen the entries with these outcomes, so that they are processed again."""
    by_user: dict[MemoryUser, list[int]] = {}
    for outcome in chosen.select_related("user"):
        by_user.setdefault(outcome.user, []).append(outcome.seq)
    for user, seqs in by_user.items():
        _reopen(request, user, Selection(entries=seqs))


def _reopen(request: HttpRequest, user: MemoryUser, selection: Selection) -> None:
    by = staff_of(request)
    try:
        done = reopening.reopen(user, selection, by=by, reason="reopened by staff")
    except (NothingToReopen, TooManyToReopen, BeingRedacted) as error:
        messages.error(request, f"{user}: {error}")
        return
    undo = f", recorded in version {done.checkpoint.version}" if done.checkpoint else ""
    number = len(done.entries)
    pending = f"{counted(number, 'entry')} {'is' if number == 1 else 'are'} pending again"
    messages.success(request, f"{user}: {pending}{undo}.")
