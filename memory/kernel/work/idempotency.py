"""Idempotent writes: a client sends a key with a write and can then safely repeat the request.

The key is stored in the same transaction as the write, so neither exists without the other, even if
a process is killed, and a failed write's key can be used again.
"""

import datetime
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memory.kernel.database.deletion import delete_oldest
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


class ResultGone(Exception):
    """The row that the first request with this key wrote has been deleted."""


@retry_deadlocks
def once(
    workspace: Workspace,
    key: str,
    fingerprint: str,
    write: Callable[[], Result],
    user: MemoryUser | None = None,
    *,
    nameless: bool = False,
    has_failed: Callable[[Result], bool] = lambda _: False,
) -> tuple[Result, bool]:
    """Do the write, unless it has already been done under this key.

    `fingerprint` identifies the request. The result is a row, a row with a JSON object, or JSON;
    `user` is the user it is about, by default the row's. `nameless` stores only a keyed
    hash of the key, too, because it may identify a person whom this write erases. An earlier write
    whose result `has_failed` is done again, and its result takes the place of the earlier one.
    Returns the write's result and whether it had already been done. Raises KeyReused if the key was
    used with a different fingerprint, KeyInProgress while the first request with the key is being
    processed, ResultGone if its row was deleted, and any error from the write itself; in that case,
    nothing is stored and the key may be used again.
    """
    with transaction.atomic():
        if not _lock(workspace, key):
            raise KeyInProgress(
                f"The first request with the Idempotency-Key {key!r} is still being processed."
                " Repeat this request in a moment."
            )
        record = (
            IdempotencyKey.objects.filter(workspace=workspace, key__in=[key, _nameless(key)])
            .select_related("user")
            .first()
        )
        if record is not None and record.user is not None and record.user.erased_at is not None:
            record.delete()  # an erased user's key that the erasure hasn't deleted yet
            record = None
        if record is not None:
            if record.fingerprint not in (fingerprint, _nameless(fingerprint)):
                raise KeyReused(
                    f"The Idempotency-Key {key!r} belongs to a request with a different method,"
                    " path or body. Use a new key for a new request."
                )
            earlier = _result_of(record.reference)
            if not has_failed(earlier):
                return earlier, True
            record.delete()
        result = write()
        IdempotencyKey.objects.create(
            workspace=workspace,
            user=None if nameless else user or _user_of(result),
            key=_nameless(key) if nameless else key,
            # Keyed, since a short body could be guessed from a plain hash.
            fingerprint=_nameless(fingerprint),
            reference=_reference_to(result),
        )
    return result, False


def _user_of(result: Any) -> MemoryUser | None:
    user = result if isinstance(result, MemoryUser) else getattr(result, "user", None)
    return user if isinstance(user, MemoryUser) else None


def _reference_to(result: Any) -> Any:
    """Return JSON that refers to a row, with the object beside it, or the JSON itself."""
    if isinstance(result, tuple) and isinstance(result[0], Model):
        row, also = result
        return {**_reference_to(row), "also": also}
    if not isinstance(result, Model):
        return {"json": result}
    return {"model": result._meta.label, "pk": str(result.pk)}


def _result_of(reference: Any) -> Any:
    """Return what `_reference_to` refers to; raises ResultGone if the row was deleted."""
    if "json" in reference:
        return reference["json"]
    try:
        row = apps.get_model(reference["model"])._default_manager.get(pk=reference["pk"])
    except MemoryUser.DoesNotExist:
        raise  # the API has a more specific error for this case
    except ObjectDoesNotExist:
        raise ResultGone("The result of this request is no longer available.") from None
    return (row, reference["also"]) if "also" in reference else row


def purge(limit: int) -> int:
    """Delete up to `limit` expired keys, oldest first; return how many were deleted."""
    old = IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT)
    return delete_oldest(old, "created_at", limit)


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
