"""Paused work for users and workspaces: who paused it, and why."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime

from memory.kernel import pauses
from memory.kernel.admin.actions import ask, note_of, report, staff_of
from memory.kernel.admin.base import MemoryAdmin, ReadOnlyAdmin
from memory.kernel.admin.columns import content_column, plain_column
from memory.kernel.admin.display import badge, counted, first_lines, inline, local_time, shortened
from memory.kernel.admin.filters import presence_filter
from memory.kernel.admin.links import MAX_LINKS, link
from memory.kernel.admin.masking import content
from memory.kernel.admin.rows import cached_on_row
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace

Of = TypeVar("Of", MemoryUser, Workspace)
Paused = TypeVar("Paused", bound=Model)

# Separates pauses that have ended from pauses in effect.
ResumedFilter = presence_filter("resumed", "resumed_at", filled="resumed", empty="paused")


class PausedAdmin(ReadOnlyAdmin[Paused]):
    """A screen for pauses; subclasses define `resume`."""

    actions = ["resume"]

    def actions_for(self, row: Any) -> Collection[str]:
        return [] if row.resumed_at else ["resume"]

    @plain_column("state", "resumed_at")
    def state(self, row: Any) -> str:
        return badge("resolved", "resumed") if row.resumed_at else badge("paused")

    @content_column("reason", "reason")
    def why(self, row: Any) -> str:
        return inline(shortened(row.reason))


@admin.register(Pause)
class PauseAdmin(PausedAdmin[Pause]):
    """Users and workspaces whose work is or was paused."""

    list_display = ["of_link", "state", "why", "paused_at", "paused_by", "resumed_at"]
    list_display_links = ["state"]
    list_filter = [ResumedFilter, "workspace"]
    list_select_related = ["user__workspace", "workspace"]
    search_fields = ["user__user_id", "workspace__name", "paused_by"]
    search_help_text = "Search by user id, workspace, or who paused the work."
    when_empty = "Nothing has been paused yet. Users and workspaces are paused on their own pages."
    fields = [
        *("of_link", "state", "reason"),
        *(("paused_at", "paused_by"), ("resumed_at", "resumed_by")),
    ]

    @plain_column("applies to")
    def of_link(self, row: Pause) -> str:
        return link(row.user) if row.user else link(row.workspace, f"workspace {row.workspace}")

    @admin.action(description="Resume work", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Pause]) -> None:
        rows = queryset.filter(resumed_at=None).select_related("user", "workspace")
        _resume(request, [row.user or row.workspace for row in rows])


class PausableAdmin(MemoryAdmin[Of]):
    """A screen for rows whose work can be paused: users or workspaces."""

    asking: Collection[str] = ["pause"]

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.change_pause")

    def pausing_for(self, row: Of) -> list[str]:
        pause = pause_of(row)
        return ["resume" if pause and _is_of(pause, row) else "pause"]

    @admin.action(description="Pause work", permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Of]) -> TemplateResponse | None:
        rows, why = list(queryset), note_of(request)
        if not self.is_confirmed(request, "pause", queryset):
            number = counted(len(rows), str(self.opts.verbose_name))
            shown = first_lines(list(map(link, rows)), MAX_LINKS)
            title = f"Pause work for {number}?"
            return ask(request, "pause", rows, self.model, title=title, verb="Pause", shown=shown)
        done = [pauses.pause(row, by=staff_of(request), reason=why) for row in rows]
        _report_result(
            request,
            rows,
            done,
            "paused; new entries and requests wait until work is resumed",
            "already paused",
            undo="resume",
        )
        return None

    @admin.action(description="Resume work", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Of]) -> None:
        _resume(request, list(queryset))

    def bands_of(self, row: Of) -> list[str]:
        if pause_of(row) is None:
            return []
        waiting = getattr(row, "pending_entries", 0)
        verb = "waits" if waiting == 1 else "wait"
        waits = f"{counted(waiting, 'entry')} {verb}, and no" if waiting else "No"
        warning = format_html("{}. {} alert can open.", self.paused(row), waits)
        return [warning]

    @plain_column("work")
    def paused(self, row: Of) -> str:
        pause = pause_of(row)
        if not pause:
            return "not paused"
        scope = "" if _is_of(pause, row) else "with the whole workspace, "
        since = (
            local_time(pause.paused_at, row)
            if isinstance(row, MemoryUser)
            else date_format(localtime(pause.paused_at), "DATETIME_FORMAT")
        )
        why = content(inline(shortened(pause.reason, 300))) if pause.reason else "no reason given"
        by = inline(f"{scope}since {since} by {pause.paused_by}")
        return format_html("{} {}: {}", link(pause, "paused"), by, why)


@cached_on_row
def pause_of(row: MemoryUser | Workspace) -> Pause | None:
    """Return the pause that applies to a user or a workspace."""
    if not getattr(row, "is_paused", True):  # as a screen has found out already
        return None
    return pauses.find_pause(row) if isinstance(row, MemoryUser) else pauses.is_paused(row)


def _is_of(pause: Pause, row: MemoryUser | Workspace) -> bool:
    return isinstance(row, Workspace) or pause.user_id is not None


def _resume(request: HttpRequest, rows: Sequence[MemoryUser | Workspace]) -> None:
    done = [pauses.resume(row, by=staff_of(request)) for row in rows]
    _report_result(request, rows, done, "resumed; pending work will be processed", "not paused")


def _report_result(
    request: HttpRequest,
    rows: Sequence[MemoryUser | Workspace],
    done: Sequence[bool],
    what: str,
    otherwise: str,
    *,
    undo: str = "",
) -> None:
    kind = "workspace" if any(isinstance(row, Workspace) for row in rows) else "user"
    undoable = [row for row, is_done in zip(rows, done, strict=True) if is_done]
    report(request, kind, sum(done), len(rows), what, otherwise, undo=undo, undoable=undoable)
