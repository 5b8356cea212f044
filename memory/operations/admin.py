"""Server alarms and stuck work."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import F
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import capfirst

from memory.kernel.admin import masking
from memory.kernel.admin.base import ReadOnlyAdmin
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import NOTHING, badge, duration, inline, preformatted, shortened
from memory.kernel.admin.filters import presence_filter
from memory.kernel.admin.links import link
from memory.kernel.models.operations import Alarm
from memory.kernel.staff import audit
from memory.kernel.staff.access import seen_by
from memory.kernel.staff.models import AuditKind
from memory.kernel.work import stuck
from memory.kernel.work.kinds import KINDS, WorkKind
from memory.kernel.work.stuck import Stuck, WorkStatus
from memory.operations import alarms

# Maximum number of rows listed for each kind of work; the option "all stuck …" also includes
# unlisted rows.
LISTED = 100
# Maximum number of rows retried or dismissed at once.
MAX_ROWS = 10_000
ACTIONS = {"try_again": "retried now", "dismiss": "dismissed"}


@admin.register(Alarm)
class AlarmAdmin(ReadOnlyAdmin[Alarm]):
    """Current and past server alarms."""

    labels = {"detail": "problem", "last_error": "notification error"}

    list_display = ["name", "standing", "detail", "raised_at", "cleared_at", "staff_notified"]
    list_filter = [presence_filter("raised", "raised_at", filled="raised", empty="over")]
    search_fields = ["name", "detail"]
    search_help_text = "Search by part of an alarm's name or message."
    ordering = [
        F("raised_at").desc(nulls_last=True),
        F("cleared_at").desc(nulls_first=True),
        "name",
    ]
    when_empty = "There have been no alarms yet."
    fields = [
        "name",
        "standing",
        "detail",
        "raised_at",
        "seen_at",
        "cleared_at",
        "staff_notified",
        "last_error",
    ]
    change_list_template = "admin/memory/alarms.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.work_view)
        return [path("work/", view, name="memory_work"), *super().get_urls()]

    def work_view(self, request: HttpRequest) -> HttpResponse:
        """Show the state of all work and list what is stuck; a POST retries or dismisses work."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            _act(request)
            return HttpResponseRedirect(request.get_full_path())
        visible = [kind for kind in _kinds(request) if _may(request, "view", kind)]
        statuses = list(stuck.work_statuses(visible))
        chosen = [one for one in statuses if request.GET.get("kind") in (None, "", one.kind.name)]
        # Audit the view, because the page shows errors and names the users whose work is stuck.
        audit.note(request.user, AuditKind.VIEW, audit.Subject(), "work")
        context = {
            **self.admin_site.each_context(request),
            "title": "Work",
            "opts": self.opts,
            "media": self.media,
            "alarms": [(alarm.name, inline(alarm.detail)) for alarm in alarms.raised()],
            "dispatched": alarms.silence(alarms.DISPATCHER),
            "standings": [_standing(one) for one in statuses],
            "stuck": [
                (one.kind, list(_rows(one.kind)), _may(request, "change", one.kind))
                for one in chosen
                if one.failing or one.dead
            ],
            "tries": settings.UAC_STUCK_ATTEMPTS,
            "listed": LISTED,
        }
        return TemplateResponse(request, "admin/memory/work.html", context)

    @plain_column("state")
    def standing(self, alarm: Alarm) -> str:
        if alarm.raised_at is not None:
            return badge("failing", "raised")
        return badge("ok", "over") if alarm.cleared_at else badge("waiting", "not raised yet")

    @plain_column("staff notified by e-mail", boolean=True)
    def staff_notified(self, alarm: Alarm) -> bool:
        return alarm.is_notified


def _kinds(request: HttpRequest) -> list[WorkKind]:
    """Return all kinds of work, limited to the workspaces that the staff member may see."""
    return [kind.within(partial(seen_by, request.user)) for kind in KINDS.values()]


def _may(request: HttpRequest, what: str, kind: WorkKind) -> bool:
    return request.user.has_perm(f"memory.{what}_{kind.model._meta.model_name}")


def _standing(one: WorkStatus) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "waiting": one.waiting,
        "oldest": duration(one.oldest) if one.waiting and one.kind.since else NOTHING,
        "held": one.held,
        "failing": one.failing,
        "dead": one.dead,
    }


def _rows(kind: WorkKind) -> Iterator[dict[str, Any]]:
    for one in stuck.find_stuck(kind, LISTED):
        yield {
            "key": f"{kind.name}:{one.row.pk}",
            "what": link(one.row),
            "whose": link(one.owner),
            "state": badge("failed", "failed permanently") if one.is_dead else badge("failing"),
            "since": one.since,
            "attempts": one.attempts,
            "again_at": one.again_at,
            "error": _error(one),
        }


def _error(one: Stuck) -> str:
    return masking.content(preformatted(shortened(one.error, 500))) if one.error else NOTHING


def _act(request: HttpRequest) -> None:
    """Apply the requested action to the selected work, and audit it."""
    action = request.POST.get("action", "")
    if action not in ACTIONS:
        messages.error(request, "Choose an action: retry or dismiss.")
        return
    chosen = request.POST.getlist("chosen")
    if not chosen:
        messages.error(request, "Nothing was done: select some work.")
    for kind in _kinds(request):
        keys = _keys(kind, chosen)
        if not keys:
            continue
        if not _may(request, "change", kind):
            messages.error(
                request,
                f"{kind.label}: skipped, since you do not have permission to change this work.",
            )
            continue
        rows = seen_by(request.user, kind.model._default_manager.filter(pk__in=keys))
        subject = audit.subject_of(rows)
        do = stuck.try_again if action == "try_again" else stuck.dismiss
        # Write the audit entry first, since nothing may be done without one.
        audit.note(request.user, AuditKind.ACT, subject, f"{kind.name}: {action}")
        number = do(kind, keys)
        _note(request, kind, keys, ACTIONS[action])
        if number:
            messages.success(request, f"{capfirst(kind.label)}: {number} {ACTIONS[action]}.")
        if left := len(keys) - number:
            messages.warning(request, f"{capfirst(kind.label)}: {left} not changed.")


def _keys(kind: WorkKind, chosen: list[str]) -> list[Any]:
    """Return the keys of the selected rows of this kind; `<kind>:all` selects all stuck rows."""
    if f"{kind.name}:all" in chosen:
        return [one.row.pk for one in stuck.find_stuck(kind, MAX_ROWS)]
    keys = []
    for text in chosen:
        name, _, key = text.partition(":")
        if name == kind.name:
            with suppress(ValidationError):  # ignore text that is not a key
                keys.append(kind.model._meta.pk.clean(key, None))
    return keys


def _note(request: HttpRequest, kind: WorkKind, keys: list[Any], what: str) -> None:
    """Record the action in the admin's log, identifying rows by key, which doesn't name anyone."""
    content_type = ContentType.objects.get_for_model(kind.model)
    StaffAction.objects.bulk_create(
        StaffAction(
            user_id=int(str(request.user.pk)),
            content_type=content_type,
            object_id=str(key),
            object_repr=f"{kind.label}: {key}"[:200],
            action_flag=CHANGE,
            change_message=f"Stuck work {what}.",
        )
        for key in keys
    )
