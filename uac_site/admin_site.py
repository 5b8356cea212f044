"""The admin's front page, ordered by what staff do every day, and rules for all admin pages."""

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.views.decorators.http import require_GET

if TYPE_CHECKING:
    from memory.kernel.models.privacy import Section

# The models whose lists stand first in their rooms.
LEADING = (
    *("Alert", "MemoryUser", "WorkspaceConstraint", "LlmCall", "Delivery", "Alarm", "Workspace"),
)


class StaffSite(admin.AdminSite):
    """Django's admin site, with our models grouped by purpose under the server's status."""

    index_template = "admin/memory/home.html"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the server's status and the list of models."""
        from memory.admin import home

        return super().index(request, {"home": home.context(request), **(extra_context or {})})

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Tell every page what its reader sees."""
        from memory.kernel.staff import access

        return {
            **super().each_context(request),
            "scope": partial(access.scope_of, request.user),
            "home_path": reverse("admin:index"),
            "sees_nothing": access.workspaces_of(request.user) == (),
        }

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Add the header's search, what an ended session interrupted, and approval of clients."""
        from memory.admin.search import search
        from memory.integrations.admin.connections import approve_client
        from uac_site.sign_in import interrupted

        view = self.admin_view(require_GET(search))
        not_done = self.admin_view(require_GET(interrupted.show_not_done))
        return [
            path("search/", view, name="memory_search"),
            path("not-done/", not_done, name="not_done"),
            path("connect/", self.admin_view(approve_client), name="approve_client"),
            *super().get_urls(),
        ]

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Refuse an account that is not staff's; the sign-in page has this view's address."""
        raise PermissionDenied

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        """Reject autocomplete requests: our fields send none, and they could reveal row content."""
        raise PermissionDenied

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Let staff change their own password; the audit log records the change atomically."""
        from memory.kernel.staff import audit, recent_sign_in
        from memory.kernel.staff.models import AuditKind

        # Otherwise, an open session could guess the old password on this page.
        if not recent_sign_in.is_recent(request):
            raise recent_sign_in.ProofRequired(keeps_form=False)
        with transaction.atomic():
            response: HttpResponseBase = super().password_change(request, extra_context)
            if isinstance(response, HttpResponseRedirect):  # otherwise, the form is shown again
                subject = audit.Subject(model="user", row=str(request.user.pk), number=1)
                audit.note(request.user, AuditKind.CHANGE, subject, "password")
        return response

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Make a view show users' texts only to staff who are allowed to see them."""
        inner = super().admin_view(view, cacheable)

        @wraps(inner)
        def seen(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # Imported late: Django looks up the site while loading its apps, before there are
            # models.
            from memory.kernel.admin.masking import hiding
            from memory.kernel.staff.access import sees_content
            from memory.kernel.staff.recent_sign_in import ProofRequired
            from uac_site.sign_in import factors, interrupted

            if request.method == "POST" and not request.user.is_authenticated:
                return interrupted.ask_to_log_in(request)
            if request.user.is_authenticated and not self.has_permission(request):
                raise PermissionDenied  # the sign-in page would only lead back here
            if factors.is_lacking(request):
                return HttpResponseRedirect(reverse("mfa_index"))
            with hiding(not sees_content(request.user)):
                try:
                    response: HttpResponseBase = inner(request, *args, **kwargs)
                except ProofRequired as error:
                    return interrupted.ask_for_proof(request, keeps_form=error.keeps_form)
                # Render the page here: otherwise, it would be rendered after the view has returned,
                # when it is too late to hide anything.
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
                return response

        return seen

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the rooms that the reader may enter; each leads to its first list."""
        # Models can be imported only once the apps are loaded.
        from memory.kernel.models.privacy import Section

        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        lists: dict[Section, list[dict[str, Any]]] = {section: [] for section in Section}
        for row in (row for app in apps for row in app["models"] if row["admin_url"]):
            row["is_here"] = request.path.startswith(row["admin_url"])
            lists[_section_of(row)].append(row)
        machinery = lists.pop(Section.MACHINERY)
        rooms = []
        for section, rows in lists.items():
            rows.sort(key=lambda row: row["object_name"] not in LEADING)
            inner = machinery if section is Section.SERVER else []
            if rows or inner:
                rooms.append(
                    {
                        "name": section.value,
                        "app_label": "memory",
                        "app_url": (rows or inner)[0]["admin_url"],
                        "has_module_perms": True,
                        "models": rows,
                        "machinery": inner,
                        "is_machinery": any(row["is_here"] for row in inner),
                        "is_here": any(row["is_here"] for row in [*rows, *inner]),
                    }
                )
        return rooms


def _section_of(row: dict[str, Any]) -> "Section":
    """Return a list's room; the name of Django's accounts tells them from the people."""
    from memory.kernel.models.privacy import Section, privacy_of

    if row["model"]._meta.app_label != "memory":
        row["name"] = {"User": "Staff accounts", "Group": "Roles"}.get(row["object_name"])
        return Section.ACCESS
    return privacy_of(row["model"]).section or Section.MACHINERY


class StaffAdminConfig(AdminConfig):
    """Installs StaffSite in place of Django's own admin site."""

    default_site = "uac_site.admin_site.StaffSite"
