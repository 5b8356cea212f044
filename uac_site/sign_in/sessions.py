"""How long a member of staff stays signed in: an idle limit, and an absolute one."""

import time
from collections.abc import Callable
from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

# The session's keys, both Unix timestamps in seconds: when it began, and when it was last extended.
_BEGAN = "began_at"
_EXTENDED = "extended_at"
# The name, in the request's environment, of the account whose session was ended here.
_ENDED = "uac.session_ended"
# A session is written at most this often, not with every request.
_SECONDS = 60


def limit_sessions(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Return a middleware that extends a used session, and ends one that is too old."""

    def respond(request: HttpRequest) -> HttpResponse:
        # Requests of the API carry a key, not a session's cookie.
        if settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated:
            _extend(request)
        return get_response(request)

    return respond


def begin(*, request: HttpRequest, **signal: Any) -> None:
    """Keep when a session begins."""
    request.session[_BEGAN] = request.session[_EXTENDED] = time.time()


def _extend(request: HttpRequest) -> None:
    now, session = time.time(), request.session
    if now - session.get(_BEGAN, 0) > settings.UAC_SESSION_HOURS * 3600:
        person = str(request.user.pk)
        logout(request)
        request.META[_ENDED] = person
    elif now - session.get(_EXTENDED, 0) > _SECONDS:
        session[_EXTENDED] = now  # saving it renews its expiry
        rows = UserSession.objects.filter(session_key=session.session_key)
        rows.update(last_seen_at=timezone.now())


def ended_of(request: HttpRequest) -> str:
    """Return the key of the account whose session was too old and has just been ended, or ""."""
    return str(request.META.get(_ENDED, ""))
