"""Pages of sign-in that are not django-allauth's."""

import time

from allauth.account.utils import get_next_redirect_url
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET


@require_GET
@login_required
def sign_in_again(request: HttpRequest) -> HttpResponse:
    """Send a person to their identity provider, which shall ask them who they are."""
    account = get_object_or_404(SocialAccount, user_id=request.user.pk)
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
    provider.stash_redirect_state(
        request,
        "login",
        next_url,
        {"forced_at": time.time()},
        state_id=auth.get_last_request_id(),
    )
    return HttpResponseRedirect(address)
