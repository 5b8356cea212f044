"""Workspaces and their API keys.

A key has the form `uac_<prefix>_<secret>`. The prefix finds the row; only an HMAC of the secret is
stored, keyed with the server's SECRET_KEY, so a leaked copy of the database gives nobody access.

A key is valid either for every user in its workspace or only for certain users, so all code that
reads or writes on behalf of a key must filter by `reach`.
"""

import datetime
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable, Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.settings import environment

KEY_PATTERN = re.compile(r"uac_([0-9a-f]+)_([A-Za-z0-9_-]+)")
# Looks up an API key by its prefix, loading only the columns that every request needs.
_OF_PREFIX = Statement(
    lambda: ApiKey.objects.filter(prefix=Parameter("prefix"), revoked_at=None).order_by(),
    *("prefix", "digest", "scopes", "user_pks", "expires_at", "last_used_at"),
    *("workspace__name", "workspace__public_id"),
    *(
        f"workspace__{field}"
        for field in (*environment.QUOTAS.overridable, *environment.CONTENT.overridable)
    ),
)
LAST_USED_RESOLUTION = datetime.timedelta(minutes=1)
# How long a replaced key stays valid alongside the new key.
OVERLAP = datetime.timedelta(hours=24)


class UnknownUsers(ValueError):
    """The workspace has no users with these ids; the message lists them."""


def create_key(
    workspace: Workspace,
    name: str,
    scopes: Sequence[Scope] = (Scope.READ, Scope.WRITE),
    *,
    expires_at: datetime.datetime | None = None,
    user_pks: Sequence[int] | None = None,
    replaces: ApiKey | None = None,
) -> tuple[ApiKey, str]:
    """Create a key. Returns (key, text); the text is shown only once.

    If `user_pks` is given, the key is valid only for the users with these primary keys.
    """
    prefix = secrets.token_hex(6)
    secret = secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        workspace=workspace,
        name=name,
        prefix=prefix,
        digest=_digest(secret),
        scopes=list(scopes),
        expires_at=expires_at,
        user_pks=None if user_pks is None else list(user_pks),
        replaces=replaces,
    )
    return key, f"uac_{prefix}_{secret}"


class NotReplaced(Exception):
    """The key can't be replaced: it has already been revoked or replaced, or has expired."""


def replace_key(key: ApiKey, overlap: datetime.timedelta = OVERLAP) -> tuple[ApiKey, str]:
    """Replace a key with one that has the same permissions, users and expiry.

    Returns the new key and its text. The old key stays valid for `overlap`. Raises NotReplaced if
    the old key has already been revoked or replaced, or has expired.
    """
    with transaction.atomic():
        old = ApiKey.objects.select_for_update(no_key=True).get(pk=key.pk)
        if old.revoked_at is not None:
            raise NotReplaced("This key was revoked.")
        if (new := old.replaced_by.filter(revoked_at=None).first()) is not None:
            raise NotReplaced(
                f"uac_{new.prefix}_… has already replaced this key: replace or revoke that newer"
                " key instead."
            )
        if old.expires_at is not None and old.expires_at <= timezone.now():
            raise NotReplaced("This key has expired.")
        created = create_key(
            old.workspace,
            old.name,
            [Scope(scope) for scope in old.scopes],
            expires_at=old.expires_at,
            user_pks=old.user_pks,
            replaces=old,
        )
        end = timezone.now() + overlap
        old.expires_at = end if old.expires_at is None else min(old.expires_at, end)
        old.save(update_fields=["expires_at"])
    return created


def persons(workspace: Workspace, user_ids: Iterable[str]) -> list[int]:
    """Return the primary keys of the workspace's users with these ids.

    Raises UnknownUsers if any of the ids is unknown in the workspace.
    """
    wanted = set(user_ids)
    users = MemoryUser.objects.filter(workspace=workspace, user_id__in=wanted)
    pks = dict(users.values_list("user_id", "pk"))
    if missing := sorted(wanted - pks.keys()):
        raise UnknownUsers(f"These user_ids do not exist in {workspace}: {', '.join(missing)}.")
    return sorted(pks.values())


def reach(key: ApiKey, user: str = "", workspace: str = "") -> Q:
    """Match the users that a key may access, or the rows that belong to such users.

    `user` is the lookup from a row to its user. `workspace` is the lookup from a row to its
    workspace; it is needed only if the workspace can't be reached through the user.
    """
    path = f"{user}__" if user else ""
    condition = Q(**{workspace or f"{path}workspace": key.workspace_id})
    return condition if key.user_pks is None else condition & Q(**{f"{path}pk__in": key.user_pks})


def reaches(key: ApiKey, user: MemoryUser) -> bool:
    """Return whether a key may access a user."""
    chosen: Collection[int] | None = key.user_pks
    return user.workspace_id == key.workspace_id and (chosen is None or user.pk in chosen)


def find_key(text: str) -> ApiKey | None:
    """Return the valid key with this text, or None if it is unknown, expired or revoked."""
    match = KEY_PATTERN.fullmatch(text)
    if match is None:
        return None
    prefix, secret = match.groups()
    now = timezone.now()
    key = _OF_PREFIX.first(prefix=prefix)
    if key is None or not hmac.compare_digest(key.digest, _digest(secret)):
        return None
    if key.expires_at is not None and key.expires_at <= now:
        return None
    if key.last_used_at is None or now - key.last_used_at > LAST_USED_RESOLUTION:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
    return key


def _digest(secret: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), secret.encode(), hashlib.sha256).hexdigest()
