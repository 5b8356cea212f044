"""Idempotent writes: a client sends a key with a write and can then safely repeat the request.

The key is stored in the same transaction as the write, so neither exists without the other, even if
a process is killed, and a failed write's key can be used again.
"""

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memory.kernel.database.timeouts import retry_deadlocks
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace

KEPT = datetime.timedelta(days=7)

Result = TypeVar("Result")


class KeyInProgress(Exception):
    """The first request with this key is still being processed."""


class KeyReused(Exception):
    """The key was used before, for a different request."""


@dataclass(frozen=True)
class Write(Generic[Result]):
    """A write, with functions that store its result as JSON and read it back."""

    do: Callable[[], Result]
    # Returns the user the result is about, or None if there is none or if nothing about the user
    # may be kept.
    user_of: Callable[[Result], MemoryUser | None]
    refer: Callable[[Result], Any]
    recall: Callable[[IdempotencyKey], Result]
    # Whether to store only keyed hashes, because the key and the request may identify a person whom
    # this write erases.
    nameless: bool = False


@retry_deadlocks
def once(
    workspace: Workspace, key: str, fingerprint: str, write: Write[Result]
) -> tuple[Result, bool]:
    """Do the write, unless it has already been done under this key.

    `fingerprint` identifies the request. Returns the write's result and whether it had already been
    done. Raises KeyReused if the key was used with a different fingerprint, KeyInProgress while the
    first request with the key is being processed, and any error from the write itself; in that
    case, nothing is stored and the key may be used again.
    """
    with transaction.atomic():
        if not _lock(workspace, key):
            raise KeyInProgress(
                f"The first request with the Idempotency-Key {key!r} is still being processed."
                " Repeat this request in a moment."
            )
        known = (
            IdempotencyKey.objects.filter(workspace=workspace, key__in=[key, _nameless(key)])
            .select_related("user", "user__head")
            .first()
        )
        if known is not None and known.user is not None and known.user.erased_at is not None:
            known.delete()  # an erased user's key that the erasure hasn't deleted yet
            known = None
        if known is not None:
            if known.fingerprint not in (fingerprint, _nameless(fingerprint)):
                raise KeyReused(
                    f"The Idempotency-Key {key!r} belongs to a request with a different method,"
                    " path or body. Use a new key for a new request."
                )
            return write.recall(known), True
        result = write.do()
        IdempotencyKey.objects.create(
            workspace=workspace,
            user=write.user_of(result),
            key=_nameless(key) if write.nameless else key,
            fingerprint=_nameless(fingerprint) if write.nameless else fingerprint,
            reference=write.refer(result),
        )
    return result, False


def purge(limit: int) -> int:
    """Delete up to `limit` expired keys, oldest first; return how many were deleted."""
    old = IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT)
    oldest = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
    deleted, _ = IdempotencyKey.objects.filter(pk__in=oldest).delete() if oldest else (0, {})
    return deleted


def _nameless(text: str) -> str:
    return salted_hmac("memory.kernel.work.idempotency", text, algorithm="sha256").hexdigest()


def _lock(workspace: Workspace, key: str) -> bool:
    """Acquire a transaction-level advisory lock on the key; return False if it is already held."""
    name = f"idempotency:{workspace.pk}:{key}".encode()
    number = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (taken,) = cursor.fetchone()
    return bool(taken)
