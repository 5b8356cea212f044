"""Writes that may be repeated without being done twice: the client names each with a key.

The key is written in the transaction of the write itself. So there is no moment at which one is
there without the other, whatever is killed; and a write that failed leaves its key free.
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
    """The first request with this key is being carried out at this moment."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The first request with the Idempotency-Key {key!r} is still being processed;"
            " repeat this one in a moment."
        )


class KeyReused(Exception):
    """The key was used before, for a request that says something else."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The Idempotency-Key {key!r} belongs to a request with another method, path or body;"
            " use a new key for a new request."
        )


@dataclass(frozen=True)
class Write(Generic[Result]):
    """A write, and how its result is kept as JSON and found again."""

    do: Callable[[], Result]
    # Whom it was about; None: nobody, or somebody of whom nothing may stay.
    user_of: Callable[[Result], MemoryUser | None]
    refer: Callable[[Result], Any]
    recall: Callable[[IdempotencyKey], Result]
    # The key, and what was asked, may tell of a person who is erased by it: hashes that nobody can
    # guess from are kept.
    nameless: bool = False


def once(
    workspace: Workspace, key: str, fingerprint: str, write: Write[Result]
) -> tuple[Result, bool]:
    """Do the write unless it was done under this key; return its result, and whether it was.

    Raises KeyReused if the fingerprint is another one, KeyInProgress while the first one is at
    it, and whatever the write raises: then nothing is kept, and the key may be used again.
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
            known.delete()  # of whom nothing is known any more: the erasure had not come to it
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
    """Delete the oldest keys of which nobody will remember the request, `limit` at most."""
    old = IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT)
    oldest = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
    deleted, _ = IdempotencyKey.objects.filter(pk__in=oldest).delete() if oldest else (0, {})
    return deleted


def _nameless(text: str) -> str:
    return salted_hmac("memory.work.idempotency", text, algorithm="sha256").hexdigest()


def _lock(workspace: Workspace, key: str) -> bool:
    """Take the key for the rest of the transaction, unless another one has it."""
    name = f"idempotency:{workspace.pk}:{key}".encode()
    number = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        (taken,) = cursor.fetchone()
    return bool(taken)
