"""Access tokens (JWT) from the product's own authorization server, at which MCP clients sign in.

A single thread fetches the keys of that server: if it hangs, requests without such a token are not
delayed, and requests with one wait a few seconds and hold no thread.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import jwt
import structlog
from django.conf import settings

from memory.kernel.models.users import MemoryUser, is_user_id
from memory.kernel.models.workspaces import ApiKey, Scope

# Signatures that need no secret of the issuer's.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
REQUIRED = ["iss", "aud", "exp"]
# How long a request waits for the keys.
TIMEOUT_SECONDS = 5.0
# Keys are fetched again when they are older than this, or when a token names an unknown one; but no
# sooner than this after the last attempt, successful or not.
LIFETIME_SECONDS, RETRY_SECONDS, FIRST_RETRY_SECONDS = 300.0, 30.0, 2.0
# While no keys can be fetched, those known are good for this long.
MAX_AGE_SECONDS = 3600.0

logger = structlog.get_logger(__name__)


@dataclass
class SigningKeys:
    """The issuer's public keys, by their id. Times are of the monotonic clock."""

    by_id: Mapping[str, jwt.PyJWK] = field(default_factory=dict)
    fetched_at: float | None = None
    tried_at: float | None = None

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with this id, if it is known."""
        return self.by_id.get(key_id) if _age(self.fetched_at) < MAX_AGE_SECONDS else None

    def is_due(self, key_id: str) -> bool:
        """Return whether the keys must be fetched before a token with this key can be checked."""
        # Without keys, every token would be refused for as long.
        pause = FIRST_RETRY_SECONDS if self.fetched_at is None else RETRY_SECONDS
        if _age(self.tried_at) < pause:
            return False
        return key_id not in self.by_id or _age(self.fetched_at) > LIFETIME_SECONDS

    def fetch(self, key_id: str) -> None:
        """Fetch the keys, unless an earlier call in the queue has done so."""
        if not self.is_due(key_id):
            return
        try:
            client = jwt.PyJWKClient(settings.UAC_MCP_JWKS_URL, timeout=TIMEOUT_SECONDS)
            keys = client.get_signing_keys()
            self.by_id = {str(key.key_id): key for key in keys}
            self.fetched_at = time.monotonic()
        except (jwt.PyJWTError, OSError, ValueError) as error:  # ValueError: they are no JSON
            logger.warning("mcp_issuer_keys_not_fetched", error=str(error)[:500])
        finally:
            self.tried_at = time.monotonic()


def _age(moment: float | None) -> float:
    return float("inf") if moment is None else time.monotonic() - moment


signing_keys = SigningKeys()
_fetching = ThreadPoolExecutor(1, thread_name_prefix="issuer")


async def prepare(text: str) -> None:
    """Fetch the issuer's keys if a token needs them; `find_user` uses only those fetched."""
    key_id = _key_id(text) if settings.UAC_MCP_ISSUER else None
    if key_id is None or not signing_keys.is_due(key_id):
        return
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await loop.run_in_executor(_fetching, signing_keys.fetch, key_id)
    except TimeoutError:
        signing_keys.tried_at = time.monotonic()


def _key_id(text: str) -> str | None:
    """Return the id of the key that signed a token; None if it names none, or is no token."""
    try:
        key_id = jwt.get_unverified_header(text).get("kid")
    except (jwt.PyJWTError, RecursionError):
        return None
    return key_id if isinstance(key_id, str) else None


def find_user(text: str, audience: str | None) -> tuple[ApiKey, str] | None:
    """Return what a token allows, as an API key that is not stored, and the id of its user.

    Returns None if there is no valid token of UAC_MCP_ISSUER for this audience, or its user is
    unknown in the workspace UAC_MCP_WORKSPACE. If `audience` is None, any audience is accepted.
    """
    key_id = _key_id(text) if settings.UAC_MCP_ISSUER else None
    signing_key = signing_keys.find(key_id) if key_id is not None else None
    if signing_key is None:
        return None
    try:
        claims = jwt.decode(
            text,
            signing_key,
            algorithms=ALGORITHMS,
            audience=audience,
            issuer=settings.UAC_MCP_ISSUER,
            options={"require": REQUIRED, "verify_aud": audience is not None},
        )
    except jwt.PyJWTError:
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
    scopes = [scope for scope in Scope if scope in granted]
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
