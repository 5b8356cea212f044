"""Acts that need a recent proof of who is acting: erasing, exporting a person, granting access.

A session that was left open does not prove it. Signing in here (a password, with the second factor
if there is one) proves it for `PROOF_SECONDS`; so does entering the password, a code or a passkey
again. A sign-in at an identity provider proves it from the moment at which the provider says that
it asked the person, which may be hours before.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ReauthenticationRequired
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.http import urlencode

Page = TypeVar("Page", bound=Callable[..., HttpResponseBase])

PROOF_SECONDS = 300
# The session's key for the moment of the last proof at a sign-in, as a Unix timestamp in seconds.
PROVED = "proved_at"


def record_sign_in(*, request: HttpRequest, **signal: Any) -> None:
    """Keep the moment of a sign-in in the session."""
    request.session[PROVED] = time.time()


def methods_of(request: HttpRequest, user: User) -> str:
    """Return how a person has signed in, such as "password + totp" or "openid_connect"."""
    records = get_authentication_records(request, user)
    return " + ".join(
        record.get("type") or record.get("provider") or record["method"] for record in records
    )


def is_recent(request: HttpRequest) -> bool:
    """Return whether the person has proved who they are within the last `PROOF_SECONDS`."""
    if not isinstance(request.user, User):
        return False
    records = get_authentication_records(request, request.user)
    again = [record["at"] for record in records if record.get("reauthenticated")]
    newest: float = max([request.session.get(PROVED, 0), *again])
    return time.time() - newest < PROOF_SECONDS


def require(request: HttpRequest) -> None:
    """Raise ReauthenticationRequired, which leads to a page that asks for the proof.

    A submitted form is kept in the session, and is carried out after that page.
    """
    if not is_recent(request):
        raise ReauthenticationRequired


def required(view: Page) -> Page:
    """Decorate a page of the admin, which is a method, so that it first asks for the proof.

    A form that is submitted without the proof is not kept, since it may hold a password.
    """

    @wraps(view)
    def proved(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if is_recent(request):
            return view(self, request, *args, **kwargs)
        methods = get_adapter().get_reauthentication_methods(request.user)
        if not methods:
            raise PermissionDenied
        query = urlencode({REDIRECT_FIELD_NAME: request.get_full_path()})
        return HttpResponseRedirect(f"{methods[0]['url']}?{query}")

    return cast("Page", proved)
