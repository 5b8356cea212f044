"""Idempotent writes: a client names a write with a key and may repeat the request safely.

The key is stored in the transaction of the write itself. So neither exists without the other,
whichever process is killed; and a write that failed leaves its key free.
"""

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memory.models import IdempotencyKey, MemoryUser, Workspace

KEPT = datetime.timedelta(days=7)

Result = TypeVar("Result")


class KeyInProgress(Exception):
    """The first request with this key is still being carried out."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The first request with the Idempotency-Key {key!r} is still being processed;"
            " repeat this request in a moment."
        )


class KeyReused(Exception):
    """The key was used before, for a different request."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The Idempotency-Key {key!r} belongs to a request with a different method, path"
            " or body; use a new key for a new request."
        )


@dataclass(frozen=True)
class Write(Generic[Result]):
    """A write, and how its result is stored as JSON and read back."""

    do: Callable[[], Result]
    # The user whom the result concerns; None if there is none, or if nothing may be kept about
    # them.
    user_of: Callable[[Result], MemoryUser | None]
    refer: Callable[[Result], Any]
    recall: Callable[[IdempotencyKey], Result]
    # The key and the request may identify a person whom this write erases: store only keyed hashes.
    nameless: bool = False


def once(
    workspace: Workspace, key: str, fingerprint: str, write: Write[Result]
) -> tuple[Result, bool]:
    """Do the write unless it was already done under this key.

    Returns its result, and whether it had already been done. Raises KeyReused if the fingerprint
    differs, KeyInProgress while the first request is under way, and whatever the write raises: then
    nothing is stored, and the key may be used again.
    """
    with transaction.atomic():
        if not _lock(workspace, key):
            raise KeyInProgress(key)
        known = (
            IdempotencyKey.objects.filter(workspace=workspace, key__in=[key, _nameless(key)])
            .select_related("user", "user__head")
            .first()
        )
        if known is not None and known.user is not None and known.user.erased_at is not None:
            known.delete()  # an erased user's key, which the erasure has not reached yet
            known = None
        if known is not None:
            if known.fingerprint not in (fingerprint, _nameless(fingerprint)):
                raise KeyReused(key)
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
    """Delete the oldest expired keys, at most `limit`; return how many were deleted."""
    old = IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT)
    oldest = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
    deleted, _ = IdempotencyKey.objects.filter(pk__in=oldest).delete() if oldest else (0, {})
    return deleted


def _nameless(text: str) -> str:
    return salted_hmac("memory.work.idempotency", text, algorithm="sha256").hexdigest()


def _lock(workspace: Workspace, key: str) -> bool:
    """Take an advisory lock on the key until the transaction ends; False if it is already held."""
    name = f"idempotency:{workspace.pk}:{key}".encode()
    number = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (taken,) = cursor.fetchone()
    return bool(taken)
