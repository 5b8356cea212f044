"""Leases: who works on what, until when, and how a late worker is kept from writing.

Work is a row: a `Lane` of a user, a `Run`, or what else is `LeasedWork`. Claiming it gives the row
an owner, an expiry and the next token. A worker that dies says nothing; its lease expires, somebody
else claims the row, and the token has moved on (a fencing token: Kleppmann, "How to do distributed
locking", 2016).

A claim does not wait for the disk. If the database crashes it may be forgotten, and its token given
a second time; so it is the token together with the owner that tells whose the work is.
"""

import datetime
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from memory.models import Lane
from memory.models.leased import LeasedWork
from memory.models.users import LaneName

logger = structlog.get_logger(__name__)

Leased = TypeVar("Leased", bound=LeasedWork)


class LeaseLost(Exception):
    """Another worker has claimed this work since; what was computed must not be written."""


def free(now: datetime.datetime) -> Q:
    """Match the rows that nobody holds and that need not wait after a failure."""
    return (Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)) & Q(run_after__lte=now)


def claim(work: QuerySet[Leased], **columns: Any) -> Leased | None:
    """Claim the first free row of the queryset and return it with its new token, else None.

    `columns` are set in the same statement, which is a transaction of its own. A row that somebody
    is writing at the moment is passed over.
    """
    now = timezone.now()
    rows = work.filter(free(now)).order_by().values("pk")
    free_rows: str
    parameters: tuple[Any, ...]
    free_rows, parameters = rows.query.sql_with_params()
    columns |= {
        "lease_owner": f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}",
        "lease_expires_at": now + _duration(),
    }
    assignments = ", ".join(f"{name} = %s" for name in columns)
    claimed = work.model._default_manager.raw(
        f"UPDATE {work.model._meta.db_table}"  # noqa: S608 - names of our own tables and columns
        f" SET token = token + 1, attempts = attempts + 1, {assignments}"
        f" WHERE id = ({free_rows} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)"
        " RETURNING *, set_config('synchronous_commit', 'off', true) AS not_waiting_for_the_disk",
        [*columns.values(), *parameters],
    )
    return next(iter(claimed), None)


@contextmanager
def kept(row: LeasedWork) -> Iterator[None]:
    """Renew the lease in the background for as long as the block runs."""
    _keeper.add(row)
    try:
        yield
    finally:
        _keeper.remove(row)


class _Keeper:
    """The thread that renews the leases of this process, while there are any.

    It ends with its process, so a worker that is killed stops renewing.
    """

    def __init__(self) -> None:
        self._rows: dict[int, LeasedWork] = {}
        self._thread: threading.Thread | None = None
        self._interval = 0.0
        self._changed = threading.Condition()

    def add(self, row: LeasedWork) -> None:
        with self._changed:
            self._rows[id(row)] = row
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()
            elif _interval() < self._interval:
                self._changed.notify()

    def remove(self, row: LeasedWork) -> None:
        with self._changed:
            del self._rows[id(row)]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._interval = _interval()
                self._changed.wait(self._interval)
                rows = list(self._rows.values())
                if not rows:
                    self._thread = None
                    return
            try:
                for row in rows:
                    _renew(row)
            except Error as error:
                logger.warning("leases_not_renewed", error=str(error))
            finally:
                connection.close()


_keeper = _Keeper()
# Of its parent's work a forked process does none.
os.register_at_fork(after_in_child=_keeper.__init__)  # type: ignore[misc]


def _interval() -> float:
    return float(settings.UAC_LEASE_SECONDS) / 3


def _renew(row: LeasedWork) -> None:
    """Extend the lease, unless somebody writes the row: its holder, who is about to be done."""
    with transaction.atomic():
        if _mine(row).select_for_update(no_key=True, skip_locked=True).values("pk").first():
            _mine(row).update(lease_expires_at=timezone.now() + _duration())


def check(row: LeasedWork) -> None:
    """Lock the row for the rest of the transaction; raise LeaseLost if it was claimed again."""
    if not _mine(row).select_for_update(no_key=True).values("pk").first():
        raise _lost(row)


def fail(row: LeasedWork, error: str, *, until: datetime.datetime | None = None) -> None:
    """Give the row back after a failure of ours, to be tried again later: the error is kept.

    It is not tried again before `until`. Attempts are counted at the claim, so that a worker that
    was killed counts too.
    """
    again = timezone.now() + _backoff(row)
    _mine(row).update(
        lease_expires_at=None,
        lease_owner="",
        run_after=max(again, until) if until else again,
        last_error=error[:4000],
    )


def write(row: LeasedWork, **columns: Any) -> None:
    """Write these columns of the row; raise LeaseLost if it was claimed again."""
    if not _mine(row).update(**columns):
        raise _lost(row)


def _lost(row: LeasedWork) -> LeaseLost:
    return LeaseLost(f"{row}: the lease with token {row.token} was lost")


def _mine(row: Leased) -> QuerySet[Leased]:
    """Select the row as long as the lease is neither given back nor somebody else's."""
    mine = {"pk": row.pk, "token": row.token, "lease_owner": row.lease_owner}
    return type(row)._default_manager.filter(**mine)


def _duration() -> datetime.timedelta:
    return datetime.timedelta(seconds=settings.UAC_LEASE_SECONDS)


def _backoff(row: LeasedWork) -> datetime.timedelta:
    """Return the wait after so many failures in a row: 1 s, 2 s, 4 s … 5 minutes.

    Where each try costs money, 30 s, 1 minute, 2 minutes … an hour.
    """
    doubled = 2 ** min(max(row.attempts - 1, 0), 9)
    if isinstance(row, Lane) and row.name == LaneName.STRUCTURE:
        return datetime.timedelta(seconds=min(30 * doubled, 3600))
    return datetime.timedelta(seconds=min(doubled, 300))
