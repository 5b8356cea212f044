"""Pages about one user: timeline, query console, own constraints and downloads."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from memory.constraints.admin import own_constraints
from memory.export import archive, subject
from memory.kernel.admin import masking
from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.display import ago, visible
from memory.kernel.admin.links import link, page_url
from memory.kernel.admin.pauses import PausableAdmin
from memory.kernel.admin.rows import may_see, rows_for
from memory.kernel.admission import slots
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.staff import audit, recent_sign_in
from memory.kernel.staff.access import CONTENT, PROMPTS, SUBJECT_ACCESS, sees_content
from memory.kernel.staff.models import AuditKind
from memory.log.models.entries import LogEntry
from memory.recall.admin import console
from memory.users.admin import days, timeline
from memory.users.timeline import BadPlace
from memory.versions.admin.project import project_url
from memory.versions.admin.staff_runs import may_ask
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.past_states import BeingRedacted, refuse_being_redacted


class UserPages(PausableAdmin[MemoryUser]):
    """The additional pages about a user, each with its own permissions and audit entries."""

    def get_urls(self) -> list[URLPattern]:
        views = {
            "export": require_GET(self.export_view),
            "subject_access": require_GET(self.subject_access_view),
            "timeline": require_GET(self.timeline_view),
            "progress": require_GET(self.progress_view),
            "day": require_GET(self.day_view),
            "console": self.console_view,
            "constraint": self.constraint_view,
        }
        pages = [
            path(
                f"<int:pk>/{name}/",
                self.admin_site.admin_view(view),
                name=f"memory_memoryuser_{name}",
            )
            for name, view in views.items()
        ]
        return [*pages, *super().get_urls()]

    def constraint_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        user = self.seen_or_refuse(request, pk, allowed=own_constraints.may_write(request))
        kind = AuditKind.ACT if request.method == "POST" else AuditKind.VIEW
        audit.note(request.user, kind, self._subject(user), "constraint")
        title = "Constraint for one user"
        return own_constraints.page(request, user, self._context(request, user, title))

    def console_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        user = self.seen_or_refuse(request, pk, allowed=may_ask(request))
        asks = request.method == "POST"
        kind, what = (AuditKind.ACT, "query") if asks else (AuditKind.VIEW, "console")
        audit.note(request.user, kind, self._subject(user), what)
        return console.console(request, user, self._context(request, user, "Query console"))

    def timeline_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        user = self._seen(request, pk)
        try:
            line = timeline.line_context(request, user)
        except BadPlace:
            self.message_user(request, "The timeline has no such page.", messages.ERROR)
            return redirect("admin:memory_memoryuser_timeline", user.pk)
        self._note_view(request, user, "timeline")
        context = {**self._context(request, user, "Timeline"), **line}
        return TemplateResponse(request, "admin/memory/memoryuser/timeline.html", context)

    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        if not may_see(request, Lane):
            raise PermissionDenied
        return timeline.progress_answer(request, self._seen(request, pk))

    def day_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        user = self._seen(request, pk)
        self._note_view(request, user, "day")
        context = {**self._context(request, user, "A day"), "day": days.chosen(request, user)}
        return TemplateResponse(request, "admin/memory/memoryuser/day.html", context)

    def _context(self, request: HttpRequest, user: MemoryUser, title: str) -> dict[str, Any]:
        """Return what the templates of pages about a user need."""
        name = visible(masking.name_of(user))
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": name,
            "user_name": name,
            "opts": self.opts,
            "media": self.media,
            "user_url": page_url(user),
            "person": user,
        }

    def _subject(self, row: MemoryUser) -> audit.Subject:
        """Return the user as the subject of an audit entry, without a database query."""
        return audit.Subject(
            model=str(self.opts.model_name),
            row=str(row.pk),
            number=1,
            person=row.public_id,
            workspace=row.workspace_id,
        )

    def _seen(self, request: HttpRequest, pk: int) -> MemoryUser:
        """Return the user without the counts that lists show.

        Raises PermissionDenied if the staff member may not see users, and Http404 if this user does
        not exist or is not visible to them.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        users = rows_for(request, MemoryUser).filter(pk=pk)
        user = defer_large(users, "workspace", "head", keep=MemoryUser.LARGE).first()
        if user is None:
            raise Http404("There is no such user.")
        return user

    def context_of(self, request: HttpRequest, row: MemoryUser) -> dict[str, Any]:
        panel = timeline.panel(request, row)
        ways = _ways(request, row, panel["sees_line"])
        panel |= {"facts": _facts(request, row), "ways": ways}
        return {**super().context_of(request, row), "panel": panel}

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        def download(user: MemoryUser) -> HttpResponseBase:
            refuse_being_redacted(user)
            return archive.download(user, user.head)

        # The zip contains everything that the file pages show, so it requires the same permissions.
        return self._download(
            request, pk, download, "Downloaded the project.", needed=_for_export()
        )

    @recent_sign_in.required
    def subject_access_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        return self._download(
            request,
            pk,
            subject.download,
            "Downloaded all stored data about the person.",
            needed=_for_subject_access(),
        )

    def _download(
        self,
        request: HttpRequest,
        pk: int,
        download: Callable[[MemoryUser], HttpResponseBase],
        note: str,
        *,
        needed: Collection[str],
    ) -> HttpResponseBase:
        user = self.seen_or_refuse(request, pk, allowed=request.user.has_perms(needed))
        try:
            answer = slots.download(staff_of(request), functools.partial(download, user))
        except (BeingRedacted, LimitExceeded) as error:
            self.message_user(request, str(error), messages.ERROR)
            return redirect("admin:memory_memoryuser_change", user.pk)
        audit.note(request.user, AuditKind.DOWNLOAD, self._subject(user), note)
        self.log_change(request, user, note)
        return answer


def _facts(request: HttpRequest, user: MemoryUser) -> list[SafeString | str]:
    """Return a user's workspace and time zone, when we last heard of them, and since when."""
    heard = getattr(user, "last_heard_at", None) if may_see(request, LogEntry) else None
    return [
        link(user.workspace),
        user.time_zone,
        *([format_html("last heard {} ago", ago(heard))] if heard else []),
        format_html("created {} ago", ago(user.created_at)),
    ]


def _for_export() -> Sequence[str]:
    return ["memory.view_blob", CONTENT]


def _for_subject_access() -> Sequence[str]:
    models = (f"memory.view_{model._meta.model_name}" for model in subject.exports())
    return [*models, CONTENT, PROMPTS, SUBJECT_ACCESS]


def _downloads_for(request: HttpRequest) -> Sequence[tuple[str, str]]:
    """Return (URL name, text) for each download about a user that the staff member may have."""
    downloads = (
        (_for_export(), "memory_memoryuser_export", "Download project (zip)"),
        (
            _for_subject_access(),
            "memory_memoryuser_subject_access",
            "Download all stored data (zip)",
        ),
    )
    return [(name, text) for needed, name, text in downloads if request.user.has_perms(needed)]


def _ways(request: HttpRequest, user: MemoryUser, sees_line: bool) -> list[tuple[str, str]]:
    """Return (name, URL) for each page about the user that the staff member may see."""
    line = reverse("admin:memory_memoryuser_timeline", args=[user.pk])
    ways = [("Timeline", line)] if sees_line else []
    downloads = [
        (text, reverse(f"admin:{name}", args=[user.pk])) for name, text in _downloads_for(request)
    ]
    if user.head_id is None:
        return [*ways, *downloads]
    if may_ask(request):
        ways.insert(0, ("Query console", console.console_url(user)))
    if may_see(request, Checkpoint) and sees_content(request.user):
        ways.append(("Project, file by file", project_url(user.head_id)))
    if own_constraints.may_write(request):
        address = own_constraints.own_constraint_url(user)
        ways.append(("Constraints for this user", address))
    return [*ways, *downloads]
