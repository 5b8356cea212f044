"""Pages of sign-in that are not django-allauth's, and what its pages show of the admin."""

from typing import Any

from allauth.account.utils import get_next_redirect_url
from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from uac_site.sign_in import factors
from uac_site.sign_in.adapters import account_of


@require_GET
@login_required
def sign_in_again(request: HttpRequest) -> HttpResponse:
    """Send a person to their identity provider, which shall ask them who they are."""
    account = account_of(request.user) if isinstance(request.user, User) else None
    if account is None:
        raise Http404
    provider = account.get_provider(request)
    next_url = get_next_redirect_url(request) or "/admin/"
    if provider.id != "saml":
        asking = {"prompt": "login", "max_age": "0"}
        response: HttpResponse = provider.redirect(
            request, process="login", next_url=next_url, auth_params=asking
        )
        return response
    from allauth.socialaccount.providers.saml.utils import build_auth  # only with its extra

    auth = build_auth(request, provider)
    address = auth.login(return_to="", force_authn=True)
    provider.stash_redirect_state(request, "login", next_url, state_id=auth.get_last_request_id())
    return HttpResponseRedirect(address)


def refuse_single_logout(request: HttpRequest, slug: str) -> HttpResponse:
    """Answer 404: a provider's logout request is not signed, so anybody could send it."""
    raise Http404


def admin_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the admin's pages for those of sign-in, once a person may enter."""
    if not request.path_info.startswith(reverse("mfa_index").removesuffix("factors/")):
        return {}
    may_enter = admin.site.has_permission(request) and not factors.is_lacking(request)
    return admin.site.each_context(request) if may_enter else {}
