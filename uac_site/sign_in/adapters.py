"""The decisions that django-allauth leaves to a site."""

import datetime
import time
from ipaddress import ip_address
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from memory.kernel import encryption
from memory.kernel.staff import recent_sign_in
from uac_site.sign_in import guesses, interrupted, roles


def account_of(user: User) -> SocialAccount | None:
    """Return a person's account at an identity provider that the settings name."""
    named = {app.provider_id for app in ProviderAdapter().list_apps(None)}
    rows = SocialAccount.objects.filter(user_id=user.pk, provider__in=named)
    return rows.order_by("-last_login").first()


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc] # it has no types
    """Passwords: whether they are accepted, and how often they may be wrong."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: accounts are created by staff, or by the identity provider."""
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Check a password; raises ValidationError after too many failures.

        Failures are counted across all processes.
        """
        if not settings.UAC_PASSWORD_SIGN_IN:
            raise ValidationError("Passwords are not accepted here.", code="no_passwords")
        limits = {
            guesses.OF_ADDRESS: _address(request),
            guesses.OF_NAME: str(credentials.get("username", "")),
        }
        for limit, text in limits.items():
            guesses.check(limit, text, counted=False)
        user: User | None = super().authenticate(request, **credentials)
        if user is None:
            for limit, text in limits.items():
                guesses.count(limit, text)
        return user

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Do nothing: `authenticate` counts failures, for all processes."""

    def pre_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse | None:
        """Refuse a passkey, or a password, in place of the identity provider.

        Otherwise, somebody who has left the organisation would still get in.
        """
        response: HttpResponse | None = super().pre_login(request, user, **kwargs)
        is_by_provider = "sociallogin" in (kwargs.get("signal_kwargs") or {})
        if response is None and not is_by_provider:
            # An account at a provider that the settings name no more counts, too.
            has_provider = SocialAccount.objects.filter(user_id=user.pk).exists()
            if has_provider or not settings.UAC_PASSWORD_SIGN_IN:
                raise PermissionDenied("Log in at your organisation.")
        return response

    def logout(self, request: HttpRequest) -> None:
        """Log somebody out; what they have sent is kept, since they may be about to return."""
        kept = request.session.get(interrupted.KEPT)
        super().logout(request)
        if kept is not None:
            request.session[interrupted.KEPT] = kept

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address for the list of sessions, `::` if it is none."""
        try:
            return str(ip_address(_address(request)))
        except ValueError:
            return "::"

    def is_reauthentication_required(self, *, app: str = "") -> bool:
        """Return whether a person must prove again who they are, before they change a factor."""
        return not recent_sign_in.is_recent(self.request)

    def get_reauthentication_methods(self, user: User) -> list[dict[str, Any]]:
        """Return the ways in which a person can prove who they are, the first by default."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if not settings.UAC_PASSWORD_SIGN_IN:
            methods = [method for method in methods if method["id"] != "reauthenticate"]
        if account_of(user) is not None:
            url = reverse("sign_in_again")
            methods.append(
                {"id": "provider", "description": "Sign in again at your organisation", "url": url}
            )
        return methods


class ProviderAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc] # it has no types
    """Sign-in at an identity provider: its groups decide who enters, and in which roles."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Return True: whoever `pre_social_login` lets through gets an account."""
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse a person in none of the mapped groups; update the roles of one known here."""
        if sociallogin.state.get("process") != "login":
            raise PermissionDenied  # such as connecting it with an account that exists
        given = roles.roles_of(_groups(sociallogin))
        if sociallogin.is_existing:
            roles.give_roles(sociallogin.user, given)
        if not given:
            page = render(request, "socialaccount/no_role.html", status=403)
            raise ImmediateHttpResponse(page)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Create the account of a person who signs in for the first time."""
        sociallogin.user.is_staff = True
        user: User = super().save_user(request, sociallogin, form)
        roles.give_roles(user, roles.roles_of(_groups(sociallogin)))
        return user


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc] # it has no types
    """Second factors: their secrets are encrypted in the database, if the server has a key."""

    def encrypt(self, text: str) -> str:
        """Return the secret as it is stored."""
        return encryption.encrypt(text.encode()).decode() if encryption.available() else text

    def decrypt(self, encrypted_text: str) -> str:
        """Return the secret; those stored before the server had a key are plain."""
        if not encryption.is_token(encrypted_text):
            return encrypted_text
        return encryption.decrypt(encrypted_text.encode()).decode()


def record_provider_sign_in(
    *, request: HttpRequest, sociallogin: SocialLogin | None = None, **signal: Any
) -> None:
    """Keep when the identity provider last asked the person to prove who they are.

    OpenID Connect says it in `auth_time`, SAML in the assertion. What is not said does not count.
    """
    if sociallogin is not None:
        proved_at = _asked_at(sociallogin.account.extra_data)
        request.session[recent_sign_in.PROVED] = min(time.time(), proved_at)


def _asked_at(data: dict[str, Any]) -> float:
    """Return when the provider last asked the person, as a Unix timestamp, or 0."""
    token = data.get("id_token")
    seconds = token.get("auth_time") if isinstance(token, dict) else None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        return float(seconds)
    try:
        moment = datetime.datetime.fromisoformat(str(data.get("authn_instant")))
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.tzinfo else 0.0


def _address(request: HttpRequest) -> str:
    """Return the client's address; behind a proxy, the address reported by the proxy."""
    reported = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    behind_proxy = getattr(settings, "SECURE_PROXY_SSL_HEADER", None) is not None
    return str(reported if behind_proxy and reported else request.META.get("REMOTE_ADDR", ""))


def _groups(sociallogin: SocialLogin) -> set[str]:
    """Return the names of the groups that the identity provider reports for a person."""
    data: dict[str, Any] = sociallogin.account.extra_data
    for answer in (data.get("userinfo") or {}, data.get("id_token") or {}, data):
        groups = answer.get(settings.UAC_SIGN_IN_GROUPS_CLAIM)
        if isinstance(groups, str):
            return {groups}
        if isinstance(groups, list):
            return set(map(str, groups))
    return set()
