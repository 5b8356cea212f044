"""What staff sent after their session had ended, or from an outdated page: they can send it again.

It is kept in the session, which a login continues, and is forgotten once it is shown.
"""

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views import csrf

# The session's key for the path, the fields, and why it was not done.
_KEPT = "not_done"
# Characters of names and values that are kept: enough for a constraint with its tests.
_MAX_LENGTH = 100_000
# Fields with these words in their names are never kept.
_SECRET = ("password", "api_key", "secret")
# Fields that somebody has typed, so that the page shows them.
_TYPED = ("note", "code", "source", "tests")


def keep(request: HttpRequest, why: str) -> bool:
    """Keep what was sent, unless it is too long or has a secret; return whether it is kept."""
    fields = [
        (name, value)
        for name, values in request.POST.lists()
        for value in values
        if name != "csrfmiddlewaretoken"
    ]
    length = sum(len(name) + len(value) for name, value in fields)
    has_secret = any(word in name for name, _ in fields for word in _SECRET)
    if not fields or has_secret or length > _MAX_LENGTH:
        return False
    request.session[_KEPT] = {"path": request.get_full_path(), "fields": fields, "why": why}
    return True


def ask_to_log_in(request: HttpRequest) -> HttpResponseRedirect:
    """Redirect to the login, after which what was sent is offered again."""
    path = reverse("admin:index")
    if keep(request, "your session had ended."):
        path = reverse("admin:not_done")
        messages.warning(request, "Not done yet: your session has ended. Log in to go on.")
    query = urlencode({"next": path}, safe="/")
    return HttpResponseRedirect(f"{reverse('admin:login')}?{query}")


def show_not_done(request: HttpRequest) -> HttpResponse:
    """Show what was not done, with a button that sends it again."""
    kept: dict[str, Any] | None = request.session.pop(_KEPT, None)
    if kept is None:
        return HttpResponseRedirect(reverse("admin:index"))
    given = dict(kept["fields"])
    context = {
        **admin.site.each_context(request),
        **kept,
        "title": "Not done",
        "typed": [given[name] for name in _TYPED if given.get(name)],
        "verb": str(given.get("action") or "send").replace("_", " ").capitalize(),
    }
    return TemplateResponse(request, "admin/memory/not_done.html", context)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Respond to a form whose token is outdated, as after a login in another tab.

    Only a form of our own pages may be sent again: otherwise, a foreign page could offer its own.
    """
    if not request.path_info.startswith(reverse("admin:index")):
        return csrf.csrf_failure(request, reason=reason)
    if request.path_info == reverse("admin:login"):
        return HttpResponseRedirect(request.get_full_path())
    if request.headers.get("Sec-Fetch-Site") == "same-origin":
        if not admin.site.has_permission(request):
            return ask_to_log_in(request)
        if keep(request, "the page was outdated."):
            return HttpResponseRedirect(reverse("admin:not_done"))
    return csrf.csrf_failure(request, reason=reason, template_name="403.html")
