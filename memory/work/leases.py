"""Leases: who works on what, until when, and how a late worker is kept from writing.

Work is a row: a `Lane` of a user, a `Run`, or what else is `LeasedWork`. Claiming it gives the row
an owner, an expiry and the next token. A worker that dies says nothing; its lease expires, somebody
else claims the row, and the token has moved on (a fencing token: Kleppmann, "How to do distributed
locking", 2016).

A process whose clock is wrong (`memory.database.clock`) claims nothing, and has lost what it holds.

A claim does not wait for the disk. If the database crashes it may be forgotten, and its token given
a second time; so it is the token together with the owner that tells whose the work is.
"""

import datetime
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, Error, connection, transaction
from django.db.models import DateTimeField, F, Q, QuerySet
from django.utils import timezone

from memory.database import clock
from memory.database.statements import Parameter, Statement
from memory.database.timeouts import columns_of
from memory.models import Lane, MemoryUser
from memory.models.leased import LeasedWork
from memory.models.users import LaneName
from memory.users import is_erased

logger = structlog.get_logger(__name__)

Leased = TypeVar("Leased", bound=LeasedWork)


# So far apart the clocks of machines are that are set by NTP, and it is less than any wait.
SKEW = datetime.timedelta(seconds=0.5)


class LeaseLost(Exception):
    """Another worker has claimed this work since; what was computed must not be written."""


def free(now: datetime.datetime | Parameter) -> Q:
    """Match the rows that nobody holds and that need not wait after a failure.

    Who has written a row a moment ago may be a little ahead: it can be claimed all the same.
    """
    idle = Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)
    return idle & Q(run_after__lte=now + SKEW)


class Work(Generic[Leased]):
    """Rows that are claimed so often that the SQL which selects them is written once.

    `rows` returns their queryset, with `Parameter`s.
    """

    def __init__(self, rows: Callable[[], QuerySet[Leased]]) -> None:
        self._rows = rows
        self._free = Statement(
            lambda: rows().filter(free(Parameter("now", DateTimeField()))).order_by(), "id"
        )

    def claim(self, columns: Mapping[str, Any], **values: Any) -> Leased | None:
        """Claim the first of the rows for these values: see `claim`."""
        if not clock.is_right():
            return None
        now = timezone.now()
        return _claim(self._model, *self._free.sql(now=now, **values), columns, now)

    @cached_property
    def _model(self) -> type[Leased]:
        return self._rows().model


def claim(work: QuerySet[Leased], **columns: Any) -> Leased | None:
    """Claim the first free row of the queryset and return it with its new token, else None.

    `columns` are set in the same statement, which is a transaction of its own. A row that somebody
    is writing at the moment is passed over.
    """
    if not clock.is_right():
        return None
    now = timezone.now()
    rows = work.filter(free(now)).order_by().values("pk")
    return _claim(work.model, *rows.query.sql_with_params(), columns, now)


def _claim(
    model: type[Leased],
    free_rows: str,
    parameters: Sequence[Any],
    columns: Mapping[str, Any],
    now: datetime.datetime,
) -> Leased | None:
    written = {
        **columns,
        "lease_owner": f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}",
        "lease_expires_at": now + _duration(),
    }
    assignments = ", ".join(f"{name} = %s" for name in written)
    claimed = model._default_manager.raw(
        f"UPDATE {model._meta.db_table}"  # noqa: S608  # nosec B608 # our own names
        f" SET token = token + 1, attempts = attempts + 1, {assignments}"
        # Of no row that it is joined with: somebody writes to the user all the time.
        f" WHERE id = ({free_rows} LIMIT 1"
        f" FOR NO KEY UPDATE OF {model._meta.db_table} SKIP LOCKED)"
        f" RETURNING {columns_of(model)},"
        " set_config('synchronous_commit', 'off', true) AS not_waiting_for_the_disk",
        [*written.values(), *parameters],
    )
    return next(iter(claimed), None)


@contextmanager
def kept(row: LeasedWork) -> Iterator[None]:
    """Renew the lease in the background for as long as the block runs, up to UAC_WORK_SECONDS.

    What takes longer hangs. A thread cannot be ended, but its claim can: somebody else does it.
    Raises LeaseLost where the block ends because its user was erased.
    """
    try:
        _keeper.add(row)
        yield
    except (MemoryUser.DoesNotExist, DatabaseError) as error:
        if not is_erased(error):
            raise
        raise LeaseLost("the user was erased meanwhile") from None
    finally:
        _keeper.remove(row)


def works_on(user_pk: int) -> bool:
    """Tell whether this process works on a user, be it without a lease by now."""
    return any(getattr(row, "user_id", None) == user_pk for row in _keeper.held())


class _Keeper:
    """The thread that renews the leases of this process, while there are any.

    It ends with its process, so a worker that is killed stops renewing.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[LeasedWork, float]] = {}
        # Whose leases are renewed, and those that are worked on without one by now.
        self._held: dict[int, LeasedWork] = {}
        self._thread: threading.Thread | None = None
        self._interval = 0.0
        self._changed = threading.Condition()

    def add(self, row: LeasedWork) -> None:
        with self._changed:
            self._held[id(row)] = row
            self._rows[id(row)] = (row, time.monotonic() + settings.UAC_WORK_SECONDS)
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="leases", daemon=True)
                thread.start()
                self._thread = thread
            elif _interval() < self._interval:
                self._changed.notify()

    def held(self) -> list[LeasedWork]:
        with self._changed:
            return list(self._held.values())

    def remove(self, row: LeasedWork) -> None:
        with self._changed:
            self._rows.pop(id(row), None)
            self._held.pop(id(row), None)

    def drop_all(self) -> list[LeasedWork]:
        """Renew no lease any more; return whose were renewed."""
        with self._changed:
            rows = [row for row, _ in self._rows.values()]
            self._rows.clear()
            return rows

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
                for row, until in rows:
                    if time.monotonic() < until:
                        _renew(row)
                    else:
                        logger.error("work_hangs", work=type(row).__name__, pk=str(row.pk))
                        with self._changed:
                            self._rows.pop(id(row), None)
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


def give_back_all() -> int:
    """Give back all work of this process, which ends; return how much that was.

    It counts as not tried, and what its threads may still write of it is refused.
    """
    number = 0
    for row in _keeper.drop_all():
        with transaction.atomic():
            # Who writes the row is about to be done with it.
            if _mine(row).select_for_update(no_key=True, skip_locked=True).values("pk").first():
                number += _mine(row).update(
                    token=F("token") + 1,
                    attempts=F("attempts") - 1,
                    lease_owner="",
                    lease_expires_at=None,
                    hinted_at=None,
                )
    return number


def check(row: LeasedWork) -> None:
    """Lock the row for the rest of the transaction; raise LeaseLost if it was claimed again."""
    if not _mine(row).select_for_update(no_key=True).values("pk").first():
        raise _lost(row)


def fail(
    row: LeasedWork, error: str, *, until: datetime.datetime | None = None, counts: bool = True
) -> None:
    """Give the row back after a failure of ours, to be tried again later: the error is kept.

    It is not tried again before `until`. Attempts are counted at the claim, so that a worker that
    was killed counts too; one that only has to wait does not, if `counts` is false.
    """
    again = timezone.now() + _backoff(row)
    _mine(row).update(
        lease_expires_at=None,
        lease_owner="",
        run_after=max(again, until) if until else again,
        last_error=error[:4000],
        attempts=row.attempts if counts else row.attempts - 1,
    )


def write(row: LeasedWork, **columns: Any) -> None:
    """Write these columns of the row; raise LeaseLost if it was claimed again."""
    if not _mine(row).update(**columns):
        raise _lost(row)


def _lost(row: LeasedWork) -> LeaseLost:
    return LeaseLost(f"{row}: the lease with token {row.token} was lost")


def _mine(row: Leased) -> QuerySet[Leased]:
    """Select the row as long as the lease is neither given back nor somebody else's."""
    rows = type(row)._default_manager
    if not clock.is_right():
        return rows.none()
    return rows.filter(pk=row.pk, token=row.token, lease_owner=row.lease_owner)


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
