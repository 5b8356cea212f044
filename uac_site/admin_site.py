"""The admin's front page, ordered by what staff do every day, and rules for all admin pages."""

from functools import partial, wraps
from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import AdminConfig
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.views.decorators.http import require_GET


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
            "sees_nothing": access.workspaces_of(request.user) == (),
        }

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Add the search of the header."""
        from memory.admin.search import search

        view = self.admin_view(require_GET(search))
        return [path("search/", view, name="memory_search"), *super().get_urls()]

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
        from memory.kernel.staff import audit
        from memory.kernel.staff.models import AuditKind

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
            from uac_site.sign_in import factors

            if request.user.is_authenticated and not self.has_permission(request):
                raise PermissionDenied  # the sign-in page would only lead back here
            if factors.is_lacking(request):
                return HttpResponseRedirect(reverse("mfa_index"))
            with hiding(not sees_content(request.user)):
                response: HttpResponseBase = inner(request, *args, **kwargs)
                # Render the page here: otherwise, it would be rendered after the view has returned,
                # when it is too late to hide anything.
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
                return response

        return seen

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """Put our sections first and staff accounts last."""
        # Models can be imported only once the apps are loaded.
        from memory.kernel.models.privacy import Section, privacy_of

        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        sections: list[dict[str, Any]] = []
        for app in apps:
            if app["app_label"] == "auth":
                app["name"] = "Staff"
            if app["app_label"] != "memory":
                sections.append(app)
                continue
            for section in Section:
                rows = [row for row in app["models"] if privacy_of(row["model"]).section is section]
                if rows:
                    sections.append({**app, "name": section.value, "models": rows})
        return sorted(sections, key=lambda one: one["app_label"] != "memory")


class StaffAdminConfig(AdminConfig):
    """Installs StaffSite in place of Django's own admin site."""

    default_site = "uac_site.admin_site.StaffSite"
