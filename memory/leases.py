"""Leases: who works on what, until when, and how a late worker is kept from writing.

Work is a row: a `Lane` of a user, or a `Run`. Claiming it gives the row an owner, an expiry and the
next token. A worker that dies says nothing; its lease expires, somebody else claims the row, and
the token has moved on (a fencing token: Kleppmann, "How to do distributed locking", 2016).
"""

import datetime
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memory.models import Lane, Run

Leased = TypeVar("Leased", Lane, Run)


class LeaseLost(Exception):
    """Another worker has claimed this work since; what was computed must not be written."""


def free(now: datetime.datetime) -> Q:
    """Match the rows that nobody holds and that need not wait after a failure."""
    return (Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)) & Q(run_after__lte=now)


def claim(work: QuerySet[Leased]) -> Leased | None:
    """Claim the first free row of the queryset and return it with its new token, else None."""
    now = timezone.now()
    with transaction.atomic():
        unlocked = work.filter(free(now))
        row = unlocked.select_for_update(skip_locked=True, no_key=True, of=("self",)).first()
        if row is None:
            return None
        row.lease_owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"
        row.lease_expires_at = now + _duration()
        row.token += 1
        row.attempts += 1
        row.save(update_fields=["lease_owner", "lease_expires_at", "token", "attempts"])
    return row


@contextmanager
def kept(row: Lane | Run) -> Iterator[None]:
    """Renew the lease in the background for as long as the block runs.

    The renewing thread ends with its process, so a worker that is killed stops renewing.
    """
    stop = threading.Event()
    # Once given back, the row has no owner; a late renewal must not lease it again.
    mine = _mine(row).filter(lease_owner=row.lease_owner)

    def renew() -> None:
        try:
            while not stop.wait(settings.UAC_LEASE_SECONDS / 3):
                if not mine.update(lease_expires_at=timezone.now() + _duration()):
                    return
        finally:
            connection.close()

    thread = threading.Thread(target=renew, name=f"lease-{row.pk}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def check(row: Lane | Run) -> None:
    """Lock the row for the rest of the transaction; raise LeaseLost if it was claimed again."""
    if not _mine(row).select_for_update(no_key=True).values("pk").first():
        raise LeaseLost(f"{row}: the lease with token {row.token} was lost")


def fail(row: Lane | Run, error: str) -> None:
    """Give the row back after a failure of ours, to be tried again later: the error is kept.

    Attempts are counted at the claim, so that a worker that was killed counts too.
    """
    _mine(row).update(
        lease_expires_at=None,
        lease_owner="",
        run_after=timezone.now() + _backoff(row.attempts),
        last_error=error[:4000],
    )


def _mine(row: Lane | Run) -> QuerySet[Lane] | QuerySet[Run]:
    """Select the row as long as nobody else has claimed it since."""
    if isinstance(row, Lane):
        return Lane.objects.filter(pk=row.pk, token=row.token)
    return Run.objects.filter(pk=row.pk, token=row.token)


def _duration() -> datetime.timedelta:
    return datetime.timedelta(seconds=settings.UAC_LEASE_SECONDS)


def _backoff(attempts: int) -> datetime.timedelta:
    """Return the wait after this many failures in a row: 1 s, 2 s, 4 s … 5 minutes."""
    return datetime.timedelta(seconds=min(2 ** min(attempts - 1, 9), 300))
