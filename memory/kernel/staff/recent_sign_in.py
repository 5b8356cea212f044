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

from allauth.account.authentication import get_authentication_records
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase

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


class ProofRequired(Exception):
    """A person must prove who they are; the admin leads to a page that asks for it."""

    def __init__(self, *, keeps_form: bool) -> None:
        super().__init__()
        # Whether what was sent is offered again afterwards; it may hold a password.
        self.keeps_form = keeps_form


def require(request: HttpRequest) -> None:
    """Raise ProofRequired unless there is a recent proof; the form is offered again after it."""
    if not is_recent(request):
        raise ProofRequired(keeps_form=True)


def required(view: Page) -> Page:
    """Decorate a page of the admin, which is a method, so that it first asks for the proof.

    A form that is submitted without the proof is not kept, since it may hold a password.
    """

    @wraps(view)
    def proved(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not is_recent(request):
            raise ProofRequired(keeps_form=False)
        return view(self, request, *args, **kwargs)

    return cast("Page", proved)
