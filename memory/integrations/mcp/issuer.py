"""Access tokens (JWT) from the product's own authorization server, at which MCP clients sign in."""

import functools

import jwt
from django.conf import settings

from memory.kernel.models.users import MemoryUser, is_user_id
from memory.kernel.models.workspaces import ApiKey, Scope

# Signatures that need no secret of the issuer's.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
REQUIRED = ["iss", "aud", "exp"]
TIMEOUT_SECONDS = 5


def find_user(text: str, audience: str | None) -> tuple[ApiKey, str] | None:
    """Return what a token allows, as an API key that is not stored, and the id of its user.

    Returns None if there is no valid token of UAC_MCP_ISSUER for this audience, or its user is
    unknown in the workspace UAC_MCP_WORKSPACE. If `audience` is None, any audience is accepted.
    """
    if not settings.UAC_MCP_ISSUER:
        return None
    try:
        claims = jwt.decode(
            text,
            _keys().get_signing_key_from_jwt(text),
            algorithms=ALGORITHMS,
            audience=audience,
            issuer=settings.UAC_MCP_ISSUER,
            options={"require": REQUIRED, "verify_aud": audience is not None},
        )
    except (jwt.PyJWTError, ValueError):  # ValueError: the keys are no JSON
        return None
    user_id = claims.get(settings.UAC_MCP_USER_CLAIM)
    if not isinstance(user_id, str) or not is_user_id(user_id):
        return None
    users = MemoryUser.objects.select_related("workspace").filter(
        workspace__name=settings.UAC_MCP_WORKSPACE, user_id=user_id, erased_at=None
    )
    user = users.first()
    if user is None:
        return None
    granted = str(claims.get("scope", "")).split()
    scopes = [scope for scope in (Scope.READ, Scope.WRITE) if scope in granted]
    key_of_user = ApiKey(
        workspace=user.workspace, name="MCP", prefix="mcp", scopes=scopes, user_pks=[user.pk]
    )
    return key_of_user, user.user_id


def validate_server_settings() -> dict[str, str]:
    """Return what is wrong with the settings of the issuer, by the setting's name."""
    required = ("UAC_MCP_JWKS_URL", "UAC_MCP_WORKSPACE") if settings.UAC_MCP_ISSUER else ()
    return {
        name: "It is required with UAC_MCP_ISSUER."
        for name in required
        if not getattr(settings, name)
    }


@functools.cache
def _keys() -> jwt.PyJWKClient:
    return jwt.PyJWKClient(settings.UAC_MCP_JWKS_URL, timeout=TIMEOUT_SECONDS)
