"""The codes and tokens of MCP clients: each is valid for one user, one MCP address, and its scopes.

A code or token has the form `uac<kind>_<id>_<secret>`; only an HMAC of its secret is stored. Every
refresh replaces both tokens. A code or the latest refresh token that is used again may have been
stolen, so it revokes the connection.
"""

import datetime
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from enum import StrEnum

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone

from memory.integrations.mcp.models import AgentConnection
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.staff import access

CODE_LIFETIME = datetime.timedelta(minutes=1)
ACCESS_LIFETIME = datetime.timedelta(hours=1)
# A client that has not refreshed its tokens for this long must be approved again.
REFRESH_LIFETIME = datetime.timedelta(days=30)
_PATTERN = re.compile(r"uac([car])_([0-9a-f]{32})_([A-Za-z0-9_-]{43})")


class Kind(StrEnum):
    """What a text is: a code, an access token or a refresh token."""

    CODE = "c"
    ACCESS = "a"
    REFRESH = "r"


def approve(
    user: MemoryUser,
    *,
    client_id: str,
    client_name: str,
    redirect_uri: str,
    code_challenge: str,
    audience: str,
    scopes: Sequence[str],
    staff: User,
) -> tuple[AgentConnection, str]:
    """Let an MCP client into a user's memory. Returns the connection and the client's code."""
    secret = secrets.token_urlsafe(32)
    connection = AgentConnection.objects.create(
        user=user,
        client_id=client_id,
        client_name=client_name,
        redirect_uri=redirect_uri,
        code_challenge=code_challenge,
        code_digest=_digest(Kind.CODE, secret),
        audience=audience,
        scopes=list(scopes),
        approved_by=staff,
    )
    return connection, _text(Kind.CODE, connection, secret)


def find(kind: Kind, text: str) -> AgentConnection | None:
    """Return the connection with this valid code or token; None if there is none.

    A code or refresh token that has been used already revokes its connection.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or match[1] != kind:
        return None
    rows = AgentConnection.objects.select_related("user__workspace", "approved_by")
    connection = rows.filter(pk=match[2], revoked_at=None).first()
    if connection is None or not _is_approved(connection):
        return None
    digest = _digest(kind, match[3])
    is_current = hmac.compare_digest(_stored_digest(connection, kind), digest)
    if kind is Kind.CODE:
        is_reused = is_current and connection.refreshed_at is not None
    else:
        is_reused = kind is Kind.REFRESH and digest == connection.previous_refresh_digest
    if is_reused:
        revoke(AgentConnection.objects.filter(pk=connection.pk))
        return None
    return connection if is_current and timezone.now() < expiry_of(connection, kind) else None


def expiry_of(connection: AgentConnection, kind: Kind) -> datetime.datetime:
    """Return when a connection's code or token expires."""
    if kind is Kind.CODE:
        return connection.created_at + CODE_LIFETIME
    began = connection.refreshed_at or connection.created_at
    return began + (ACCESS_LIFETIME if kind is Kind.ACCESS else REFRESH_LIFETIME)


def issue_tokens(connection: AgentConnection) -> tuple[str, str] | None:
    """Replace the tokens. Returns an access and a refresh token.

    Returns None if the code or refresh token with which `connection` was found has been used in the
    meantime, or the connection has been revoked.
    """
    access_secret, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    unchanged = AgentConnection.objects.filter(
        pk=connection.pk, revoked_at=None, refresh_digest=connection.refresh_digest
    )
    number = unchanged.update(
        access_digest=_digest(Kind.ACCESS, access_secret),
        previous_refresh_digest=connection.refresh_digest,
        refresh_digest=_digest(Kind.REFRESH, refresh),
        refreshed_at=timezone.now(),
    )
    if not number:
        return None
    return _text(Kind.ACCESS, connection, access_secret), _text(Kind.REFRESH, connection, refresh)


def revoke(connections: QuerySet[AgentConnection]) -> int:
    """Revoke connections at once and for good; returns how many were not revoked before."""
    return connections.filter(revoked_at=None).update(revoked_at=timezone.now())


def key_of(connection: AgentConnection) -> ApiKey:
    """Return what a connection's access token allows, as an API key that is not stored."""
    return ApiKey(
        workspace=connection.user.workspace,
        name=connection.client_name,
        prefix=connection.pk.hex[:12],
        scopes=connection.scopes,
        user_pks=[connection.user_id],
    )


def _is_approved(connection: AgentConnection) -> bool:
    """Return whether whoever approved the connection could still do so."""
    staff = connection.approved_by
    if staff is None or connection.user.erased_at is not None:
        return False
    workspaces = access.seen_by(staff, Workspace.objects.filter(pk=connection.user.workspace_id))
    return set(connection.scopes) <= set(find_grantable(staff)) and workspaces.exists()


def find_grantable(staff: User) -> list[Scope]:
    """Return the scopes that a staff member may give to clients; empty if they may let none in.

    With `manage`, a client can redact the user's entries, so it takes the permission to do so.
    """
    allowed = staff.has_perm("memory.add_agentconnection") and access.sees_content(staff)
    if not (staff.is_active and staff.is_staff and allowed):
        return []
    redacts = staff.has_perm("memory.change_logentry")
    return [scope for scope in Scope if scope != Scope.MANAGE or redacts]


def _stored_digest(connection: AgentConnection, kind: Kind) -> str:
    return {
        Kind.CODE: connection.code_digest,
        Kind.ACCESS: connection.access_digest,
        Kind.REFRESH: connection.refresh_digest,
    }[kind]


def _text(kind: Kind, connection: AgentConnection, secret: str) -> str:
    return f"uac{kind}_{connection.pk.hex}_{secret}"


def _digest(kind: Kind, secret: str) -> str:
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, f"{kind}{secret}".encode(), hashlib.sha256).hexdigest()
