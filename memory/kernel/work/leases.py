"""Leases: which worker holds which work until when, and fencing tokens that reject late writes.

A work item is a row: a user's `Lane`, a `Run`, or any other `LeasedWork`. Claiming a row gives it
an owner, an expiry and the next token. When a worker dies, its lease expires, another worker claims
the row, and the higher token stops late writes by the first worker (a fencing token: Kleppmann,
"How to do distributed locking", 2016).

A process whose clock is wrong (`memory.kernel.database.clock`) claims no work and considers its
leases lost.

A claim is committed without waiting for the disk, so a database crash may undo it, and its token
may then be issued again. That is why a lease is identified by both its token and its owner.
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

from memory.kernel.database import clock
from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.database.timeouts import columns_of
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.texts import visible
from memory.kernel.users import is_erased

logger = structlog.get_logger(__name__)

Leased = TypeVar("Leased", bound=LeasedWork)


# The columns of a row that no worker holds. If a worker may still hold the row, the next token
# makes it lose its lease.
RELEASED: Mapping[str, Any] = {"lease_owner": "", "lease_expires_at": None}
REVOKED: Mapping[str, Any] = {**RELEASED, "token": F("token") + 1}
# Clocks synchronised by NTP differ by less than this, and any wait is longer than this.
SKEW = datetime.timedelta(seconds=0.5)


class LeaseLost(Exception):
    """The lease on this work was lost, so the caller must not write its result."""


def free(now: datetime.datetime | Parameter) -> Q:
    """Match rows that no worker holds and whose wait after a failure is over.

    SKEW is added because the clock of the process that wrote `run_after` may be slightly ahead.
    """
    idle = Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)
    return idle & Q(run_after__lte=now + SKEW)


class Postponed(Exception):
    """The work can't be done now, for a reason that the message names; it is tried again later.

    That is not before `until`, if given, and else after the usual delay. With `counts=False`, the
    attempt isn't counted.
    """

    def __init__(
        self, message: str, *, until: datetime.datetime | None = None, counts: bool = True
    ) -> None:
        super().__init__(message)
        self.until = until
        self.counts = counts


class ClaimQuery(Generic[Leased]):
    """A claim made so often that the SQL that selects its candidate rows is built only once.

    `rows` returns a queryset of the candidate rows that contains `Parameter`s.
    """

    def __init__(self, rows: Callable[[], QuerySet[Leased]]) -> None:
        self._rows = rows
        self._free = Statement(
            lambda: rows().filter(free(Parameter("now", DateTimeField()))).order_by(), "id"
        )

    def claim(self, columns: Mapping[str, Any], **values: Any) -> Leased | None:
        """Claim the first free row for these parameter values, just like the function `claim`."""
        if not clock.is_right():
            return None
        now = timezone.now()
        return _claim(self._model, *self._free.sql(now=now, **values), columns, now)

    @cached_property
    def _model(self) -> type[Leased]:
        return self._rows().model


def claim(work: QuerySet[Leased], **columns: Any) -> Leased | None:
    """Claim the first free row in the queryset; return it with its new token, or None.

    `columns` are set in the same statement. Rows locked by other transactions are skipped.
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
        "lease_owner": f"{process_name()}:{threading.get_native_id()}",
        "lease_expires_at": now + _duration(),
    }
    assignments = ", ".join(f"{name} = %s" for name in written)
    claimed = model._default_manager.raw(
        f"UPDATE {model._meta.db_table}"  # noqa: S608  # nosec B608 # our own names
        f" SET token = token + 1, attempts = attempts + 1, {assignments}"
        # Don't lock joined rows: the user's row is written all the time.
        f" WHERE id = ({free_rows} LIMIT 1"
        f" FOR NO KEY UPDATE OF {model._meta.db_table} SKIP LOCKED)"
        f" RETURNING {columns_of(model)},"
        " set_config('synchronous_commit', 'off', true) AS not_waiting_for_the_disk",
        [*written.values(), *parameters],
    )
    return next(iter(claimed), None)


def process_name() -> str:
    """Return the name of this process, with which the owner of each of its leases begins."""
    return f"{socket.gethostname()}:{os.getpid()}"


def expire(work: QuerySet[Leased], process: str) -> int:
    """End the leases of a process that is gone on these rows; return on how many.

    Should it be alive after all, it loses a lease as soon as another worker claims the row.
    """
    now = timezone.now()
    held = work.filter(lease_owner__startswith=f"{process}:", lease_expires_at__gt=now)
    return held.update(lease_expires_at=now, hinted_at=None)


@contextmanager
def kept(row: LeasedWork) -> Iterator[None]:
    """Renew the row's lease in the background while the block runs, for up to UAC_WORK_SECONDS.

    Work that takes longer is considered hung: its thread can't be stopped, but its lease can
    expire, so that another worker does the work. Raises LeaseLost if the block fails because the
    user was erased.
    """
    try:
        _keeper.add(row)
        yield
    except (MemoryUser.DoesNotExist, DatabaseError) as error:
        if not is_erased(error):
            raise
        raise LeaseLost("the user was erased in the meantime") from None
    finally:
        _keeper.remove(row)


@contextmanager
def working(row: LeasedWork, *, hides_errors: bool = False) -> Iterator[None]:
    """Keep the lease of a claimed row while the block works, and release the row if that fails.

    The error is stored with the row, or only its type if `hides_errors`. Errors are raised again,
    except LeaseLost, after which another worker does the work, and Postponed.
    """
    try:
        with kept(row):
            yield
    except LeaseLost:
        logger.warning("lease_lost")
    except Postponed as postponed:
        fail(row, visible(str(postponed)), until=postponed.until, counts=postponed.counts)
        cause = type(postponed.__cause__ or postponed).__name__
        logger.warning("work_postponed", error=cause, until=postponed.until)
    except Exception as error:
        name = type(error).__name__
        fail(row, name if hides_errors else visible(f"{name}: {error}"))
        raise


def works_on(user_pk: int) -> bool:
    """Return whether this process is working for a user, even if it has lost the lease."""
    return any(getattr(row, "user_id", None) == user_pk for row in _keeper.held())


class _Keeper:
    """Renews this process's leases in a thread that runs as long as there are any.

    The thread dies with the process, so a killed worker stops renewing its leases.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[LeasedWork, float]] = {}
        # All rows this process is working on; `_rows` contains only the rows whose leases are still
        # being renewed.
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
        """Stop renewing all leases; return the rows whose leases were being renewed."""
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
# Reset the lease keeper in forked children.
os.register_at_fork(after_in_child=_keeper.__init__)  # type: ignore[misc]


def _interval() -> float:
    return float(settings.UAC_LEASE_SECONDS) / 3


def _renew(row: LeasedWork) -> None:
    """Extend the lease, unless the row is locked because its holder is about to finish."""
    with transaction.atomic():
        if _mine(row).select_for_update(no_key=True, skip_locked=True).values("pk").first():
            _mine(row).update(lease_expires_at=timezone.now() + _duration())


def give_back_all() -> int:
    """Release all work that this exiting process holds; return how many rows were released.

    The interrupted attempts aren't counted, and later writes by this process's threads are
    rejected.
    """
    number = 0
    for row in _keeper.drop_all():
        with transaction.atomic():
            # If the row is locked, its holder is about to finish, so skip it.
            if _mine(row).select_for_update(no_key=True, skip_locked=True).values("pk").first():
                number += _mine(row).update(**REVOKED, attempts=F("attempts") - 1, hinted_at=None)
    return number


def check(row: LeasedWork) -> None:
    """Lock the row until the transaction ends; raise LeaseLost if the caller has lost the lease."""
    if not _mine(row).select_for_update(no_key=True).values("pk").first():
        raise _lost(row)


def fail(
    row: LeasedWork, error: str, *, until: datetime.datetime | None = None, counts: bool = True
) -> None:
    """Release the row after a server failure so that it is retried later, and store the error.

    The work is not retried before `until`. Attempts are counted when a row is claimed, so that
    killed workers' attempts are included. Pass `counts=False` to leave this attempt uncounted, for
    work that merely has to wait.
    """
    again = timezone.now() + _backoff(row)
    _mine(row).update(
        **RELEASED,
        run_after=max(again, until) if until else again,
        last_error=error[:4000],
        attempts=row.attempts if counts else row.attempts - 1,
    )


def write(row: LeasedWork, **columns: Any) -> None:
    """Write these columns of the row; raise LeaseLost if the caller has lost the lease."""
    if not _mine(row).update(**columns):
        raise _lost(row)


def release(row: LeasedWork, **columns: Any) -> None:
    """Like `write`, and give up the lease."""
    write(row, **RELEASED, **columns)


def _lost(row: LeasedWork) -> LeaseLost:
    return LeaseLost(f"{row}: the lease with token {row.token} was lost")


def _mine(row: Leased) -> QuerySet[Leased]:
    """Select the row if the caller still holds its lease, or else nothing."""
    rows = type(row)._default_manager
    if not clock.is_right():
        return rows.none()
    return rows.filter(pk=row.pk, token=row.token, lease_owner=row.lease_owner)


def _duration() -> datetime.timedelta:
    return datetime.timedelta(seconds=settings.UAC_LEASE_SECONDS)


def _backoff(row: LeasedWork) -> datetime.timedelta:
    """Return how long to wait after `row.attempts` consecutive failures: 1 s, 2 s, 4 s … 5 min.

    In the language model's lane, where each attempt costs money, it is 30 s, 1 min, 2 min … 1 h.
    """
    doubled = 2 ** min(max(row.attempts - 1, 0), 9)
    if isinstance(row, Lane) and row.name == LaneName.STRUCTURE:
        return datetime.timedelta(seconds=min(30 * doubled, 3600))
    return datetime.timedelta(seconds=min(doubled, 300))
