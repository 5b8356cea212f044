"""Authentication of callers by a workspace API key, sent as `Authorization: Bearer uac_…`."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import Http404
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission

from memory.kernel.models.workspaces import Scope
from memory.kernel.workspaces import find_key, reach

if TYPE_CHECKING:
    # Imported for type checking only, because at run time `rest_framework.views` imports this
    # module through the settings.
    from collections.abc import Mapping

    from django.db.models import Q
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from memory.kernel.models.workspaces import ApiKey, Workspace


# The name in the WSGI environment of a function that finds keys, which the process for agents sets
# for its own requests: it also knows the tokens of MCP clients. No header has such a name.
FIND_KEY = "uac.find_key"


@dataclass(frozen=True)
class Principal:
    """The caller: a product's backend, identified by its API key."""

    key: ApiKey
    is_authenticated: bool = True

    @property
    def workspace(self) -> Workspace:
        """The only workspace that the caller can access."""
        return self.key.workspace

    def reach(self, user: str = "", workspace: str = "") -> Q:
        """Return a condition that selects what the caller may access (see `workspaces.reach`)."""
        return reach(self.key, user, workspace)

    def __str__(self) -> str:
        return f"key:{self.key.prefix}"


def principal_of(request: Request) -> Principal:
    """Return the caller of an authenticated request."""
    assert isinstance(request.user, Principal)
    return request.user


class ApiKeyAuthentication(BaseAuthentication):
    """Reads the API key from the Authorization header."""

    scheme = "Bearer"

    def authenticate(self, request: Request) -> tuple[Principal, ApiKey] | None:
        """Return the caller, or None if the request has no Authorization header.

        Raises AuthenticationFailed if the key is unknown, expired or revoked.
        """
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if not scheme:
            return None
        find = request.META.get(FIND_KEY, find_key)
        key: ApiKey | None = find(self.key_in(scheme.lower(), text.strip()))
        if key is None:
            raise AuthenticationFailed(
                "The API key is unknown, expired or revoked; send"
                f" 'Authorization: {self.scheme} uac_…'."
            )
        return Principal(key), key

    def key_in(self, scheme: str, text: str) -> str:
        """Return the key from the header's value, or an empty string if there is none."""
        return text if scheme == self.scheme.lower() else ""

    def authenticate_header(self, request: Request) -> str:
        """Return the auth challenge; without it, a missing key would cause a 403, not a 401."""
        return f'{self.scheme} realm="uac"'


class PasswordAuthentication(ApiKeyAuthentication):
    """Reads the key from git's basic authentication password, or from a bearer token."""

    def key_in(self, scheme: str, text: str) -> str:
        """Return the password, or the bearer token."""
        if scheme != "basic":
            return super().key_in(scheme, text)
        try:
            return base64.b64decode(text, validate=True).decode("latin-1").partition(":")[2]
        except binascii.Error:
            return ""

    def authenticate_header(self, request: Request) -> str:
        """Return a password challenge, without which git sends no password."""
        return 'Basic realm="uac", charset="UTF-8"'


class HasScope(BasePermission):
    """Allows a request only if the key has the scope that the method requires."""

    message = (
        "This API key lacks the required scope: `read` for reading; `write` for changes; `manage`"
        " for webhooks, backtests and subject access, for approving and enabling workspace"
        " constraints, for reopening and redacting entries, and for merging and erasing users."
    )

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the key's scopes against the request's method."""
        if not isinstance(request.user, Principal):
            return False
        return scope_of(request, view) in request.user.key.scopes


NOT_FOR_CERTAIN_USERS = (
    "This API key is limited to certain users and cannot use this endpoint, which covers the"
    " whole workspace."
)


class ReachesUsers(BasePermission):
    """Hides workspace-wide views from keys that are limited to certain users.

    A view that is safe for such keys sets `certain_users`; all other views return 404 for them.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return True, or raise Http404 if the view is hidden from the key."""
        if isinstance(request.user, Principal):
            restricted = request.user.key.user_pks is not None
            if restricted and not getattr(view, "certain_users", False):
                raise Http404(NOT_FOR_CERTAIN_USERS)
        return True


def handler_name(request: Request, view: APIView) -> str:
    """Return the name of the view's method that handles a request, by which its rules are keyed."""
    method = str(request.method).lower()
    return getattr(view, "action", None) or ("get" if method == "head" else method)


def scope_of(request: Request, view: APIView) -> Scope:
    """Return the scope that a request requires.

    A view may set `reads_only` to declare that its POST only reads, `scope` for all operations, or
    `scopes` for single ones.
    """
    scopes: Mapping[str, Scope] = getattr(view, "scopes", {})
    named = scopes.get(handler_name(request, view)) or getattr(view, "scope", None)
    if named is not None:
        return named
    reads = request.method in SAFE_METHODS or getattr(view, "reads_only", False)
    return Scope.READ if reads else Scope.WRITE


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the API key in the OpenAPI document."""

    target_class = "memory.kernel.http.authentication.ApiKeyAuthentication"
    name = "ApiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "uac_<prefix>_<secret>"}
