"""Workspaces and their API keys.

A key reads `uac_<prefix>_<secret>`. The prefix finds the row; of the secret only an HMAC is kept,
keyed with the server's SECRET_KEY, so that a copy of the database lets nobody in.
"""

import datetime
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from django.conf import settings
from django.utils import timezone

from memory.models import ApiKey, Workspace
from memory.models.workspaces import Scope

KEY_PATTERN = re.compile(r"uac_([0-9a-f]+)_([A-Za-z0-9_-]+)")
# What every request reads of its key.
NEEDED = ("prefix", "digest", "scopes", "expires_at", "last_used_at", "workspace__name")
LAST_USED_RESOLUTION = datetime.timedelta(minutes=1)


def create_key(
    workspace: Workspace,
    name: str,
    scopes: Sequence[Scope] = (Scope.READ, Scope.WRITE),
    *,
    expires_at: datetime.datetime | None = None,
) -> tuple[ApiKey, str]:
    """Create a key and return it with its text, which cannot be had again."""
    prefix = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        workspace=workspace,
        name=name,
        prefix=prefix,
        digest=_digest(secret),
        scopes=list(scopes),
        expires_at=expires_at,
    )
    return key, f"uac_{prefix}_{secret}"


def find_key(text: str) -> ApiKey | None:
    """Return the valid key with this text; None if it is unknown, expired or revoked."""
    match = KEY_PATTERN.fullmatch(text)
    if match is None:
        return None
    prefix, secret = match.groups()
    now = timezone.now()
    keys = ApiKey.objects.select_related("workspace").only(*NEEDED)
    key = next(iter(keys.filter(prefix=prefix, revoked_at=None)), None)
    if key is None or not hmac.compare_digest(key.digest, _digest(secret)):
        return None
    if key.expires_at is not None and key.expires_at <= now:
        return None
    if key.last_used_at is None or now - key.last_used_at > LAST_USED_RESOLUTION:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
    return key


def _digest(secret: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), secret.encode(), hashlib.sha256).hexdigest()
