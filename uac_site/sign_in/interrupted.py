"""What staff sent after their session had ended, or from an outdated page: they can send it again.

It is kept in the session, which a login continues, and is forgotten once it is shown.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import resolve, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views import csrf

from memory.kernel.admin.links import link
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff import audit
from memory.kernel.staff.models import AuditKind
from uac_site.sign_in import sessions

# The session's key for the paths, the fields, why it was not done, and whose it was.
KEPT = "not_done"
# Characters of names and values that are kept: enough for a constraint with its tests.
_MAX_LENGTH = 100_000
# Fields with these words in their names are never kept.
_SECRET = ("password", "api_key", "secret")
# Fields that somebody has typed, so that the page shows them.
_TYPED = ("note", "code", "source", "tests")
# Maximum number of rows that are named.
_MAX_NAMED = 10


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
    person = _person_of(request)
    if not fields or has_secret or length > _MAX_LENGTH or not person:
        return False
    request.session[KEPT] = {
        "path": request.get_full_path(),
        "path_info": request.path_info,
        "fields": fields,
        "why": why,
        "person": person,
    }
    return True


def _person_of(request: HttpRequest) -> str:
    """Return the key of the account that the browser is or was signed in to, or "".

    Whoever never was must not fill the database, and nobody else may see what was sent.
    """
    if request.user.is_authenticated:
        return str(request.user.pk)
    if ended := sessions.ended_of(request):
        return ended
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    row = Session.objects.filter(session_key=key).first()
    return str(row.get_decoded().get(SESSION_KEY, "")) if row else ""


def ask_to_log_in(request: HttpRequest) -> HttpResponseRedirect:
    """Redirect to the login, after which what was sent is offered again."""
    path = _sent_from(request)
    if keep(request, "your session had ended."):
        path = reverse("admin:not_done")
        messages.warning(request, "Not done yet: your session has ended. Log in to go on.")
    else:
        messages.warning(request, "Not done: you were not logged in. Log in, then do it again.")
    query = urlencode({"next": path}, safe="/")
    return HttpResponseRedirect(f"{reverse('admin:login')}?{query}")


def _sent_from(request: HttpRequest) -> str:
    """Return the path of the admin's page that the form was on, or of the front page."""
    home, page = reverse("admin:index"), request.headers.get("Referer", "")
    if not page.startswith(request.build_absolute_uri(home)):
        return home
    return page.removeprefix(request.build_absolute_uri("/")[:-1])


def ask_for_proof(request: HttpRequest, *, keeps_form: bool) -> HttpResponseRedirect:
    """Redirect to the page that asks who somebody is; then what was sent is offered again."""
    methods = get_adapter().get_reauthentication_methods(request.user)
    if not methods:
        raise PermissionDenied("Add a passkey or an authenticator app under Sign-in first.")
    path = request.get_full_path() if request.method == "GET" else reverse("admin:index")
    if keeps_form and keep(request, "you had to prove who you are."):
        path = reverse("admin:not_done")
    query = urlencode({"next": path}, safe="/")
    return HttpResponseRedirect(f"{methods[0]['url']}?{query}")


def show_not_done(request: HttpRequest) -> HttpResponse:
    """Show what was not done, with a button that sends it again."""
    kept: dict[str, Any] | None = request.session.get(KEPT)
    # A script that is sent here does not show it: the browser then asks for the page itself.
    if request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate":
        request.session.pop(KEPT, None)
    if kept is None or kept["person"] != str(request.user.pk):
        return HttpResponseRedirect(reverse("admin:index"))
    given = dict(kept["fields"])
    context = {
        **admin.site.each_context(request),
        **kept,
        "title": "Not done",
        "rows": _name_rows(request, kept),
        "typed": [given[name] for name in _TYPED if given.get(name)],
        "verb": str(given.get("action") or "send").replace("_", " ").capitalize(),
    }
    return TemplateResponse(request, "admin/memory/not_done.html", context)


def _name_rows(request: HttpRequest, kept: Mapping[str, Any]) -> list[SafeString | str]:
    """Name the rows that the form was about, and whose they are, as far as the reader sees them."""
    match = resolve(kept["path_info"])
    screen: Any = getattr(match.func, "model_admin", None)
    is_about_all = any(name == "select_across" and value != "0" for name, value in kept["fields"])
    if screen is None or is_about_all or not screen.has_view_permission(request):
        return []
    keys = [value for name, value in kept["fields"] if name == "_selected_action"]
    keys += [unquote(key) for key in (match.kwargs.get("object_id"),) if key]
    fields = screen.model._meta.fields
    has_user = any(one.name == "user" and one.related_model is MemoryUser for one in fields)
    try:
        rows = screen.get_queryset(request).filter(pk__in=keys[:_MAX_NAMED])
        found = list(rows.select_related("user__workspace") if has_user else rows)
    except (ValueError, ValidationError):  # no row has such a key
        return []
    if found and audit.tells_of_people(screen.model):
        audit.note(request.user, AuditKind.VIEW, audit.subject_of(rows), "not done")
    more = [f"… and {len(keys) - _MAX_NAMED} more"] if len(keys) > _MAX_NAMED else []
    if not has_user:
        return [*map(link, found), *more]
    return [*(format_html("{} of {}", link(row), link(row.user)) for row in found), *more]


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Respond to a form whose token is outdated, as after a login in another tab.

    Only a form of our own pages may be sent again: otherwise, a foreign page could offer its own.
    """
    is_sign_in = request.path_info.startswith(reverse("mfa_index").partition("factors")[0])
    if is_sign_in or not request.path_info.startswith(reverse("admin:index")):
        return csrf.csrf_failure(request, reason=reason)
    if request.path_info == reverse("admin:login"):
        return HttpResponseRedirect(request.get_full_path())
    if request.headers.get("Sec-Fetch-Site") == "same-origin":
        if not admin.site.has_permission(request):
            return ask_to_log_in(request)
        if keep(request, "the page was outdated."):
            return HttpResponseRedirect(reverse("admin:not_done"))
    return csrf.csrf_failure(request, reason=reason, template_name="403.html")
