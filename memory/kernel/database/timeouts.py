"""Database timeouts for each kind of process, and the classification of database errors.

A request must not hang, a worker may take longer, and an operator's command (`migrate`, `verify`)
may take as long as it needs. So the limits depend on the kind of process, and each process sets
them on its own connections.
"""

import functools
import time
from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar

import psycopg
import structlog
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connection, connections
from django.db.models import Model

logger = structlog.get_logger(__name__)

Kind = Literal["web", "worker"]
Given = ParamSpec("Given")
Result = TypeVar("Result")

# How often a transaction that PostgreSQL ended because of a deadlock is tried in all.
DEADLOCK_ATTEMPTS = 3
# After which PostgreSQL ends the sessions of a machine that has vanished, and releases their locks:
# seconds and probes if the session was silent, and milliseconds if an answer was on its way. By
# default, it takes hours.
_KEEPALIVES = {
    "tcp_keepalives_idle": 5,
    "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# After any of these errors, the transaction has been rolled back and may succeed if retried. The
# three groups: a time limit was exceeded; the session was terminated, or its server is not the
# primary; a lock was not available.
_TOO_LONG = psycopg.errors.QueryCanceled
_ELSEWHERE = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def hold_to(kind: Kind) -> None:
    """Apply the limits for this kind of process to all connections opened from now on.

    A transaction pooler does not accept connection options: behind a pooler, the operator sets the
    limits for the database role (docs/operations.md).
    """
    if settings.DATABASE_POOLER == "transaction":
        return
    prefix = "UAC_WEB" if kind == "web" else "UAC_WORKER"
    limits = {
        "statement_timeout": getattr(settings, f"{prefix}_STATEMENT_SECONDS"),
        "lock_timeout": getattr(settings, f"{prefix}_LOCK_SECONDS"),
        "idle_in_transaction_session_timeout": settings.UAC_TRANSACTION_IDLE_SECONDS,
    }
    milliseconds = {name: round(seconds * 1000) for name, seconds in limits.items()}
    options = connections.settings["default"]["OPTIONS"]
    own = [options["options"]] if options.get("options") else []
    settings_set = [f"-c {name}={value}" for name, value in {**milliseconds, **_KEEPALIVES}.items()]
    options["options"] = " ".join([*settings_set, *own])  # DATABASE_URL's options take precedence


@functools.cache
def columns_of(model: type[Model]) -> str:
    """Return the quoted column names of a model's table, to be listed in SQL.

    `*` would include a column that a later migration adds, and a statement prepared before that
    migration would fail.
    """
    return ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)


def took_too_long(error: Error) -> bool:
    """Return whether the error means that a statement was cancelled by its time limit."""
    return isinstance(error.__cause__, _TOO_LONG)


def refuse_after(began: float) -> None:
    """Raise a statement-timeout error if a request has used up its time budget for statements.

    `began` is when the request began, on the monotonic clock.
    """
    limit = settings.UAC_WEB_STATEMENT_SECONDS
    if limit and time.monotonic() - began > limit:
        raise OperationalError("this request's database statements took too long") from _TOO_LONG()


def was_in_the_way(error: Error) -> bool:
    """Return whether the error means that a lock was not available or that a deadlock occurred."""
    return isinstance(error.__cause__, _IN_THE_WAY)


def retry_deadlocks(act: Callable[Given, Result]) -> Callable[Given, Result]:
    """Repeat a function that PostgreSQL has chosen to end a deadlock.

    All that the function does must be one transaction. Within another transaction, which is lost as
    a whole, it is not repeated.
    """

    @functools.wraps(act)
    def acted(*arguments: Given.args, **named: Given.kwargs) -> Result:
        for attempt in range(1, DEADLOCK_ATTEMPTS + 1):
            try:
                return act(*arguments, **named)
            except OperationalError as error:
                deadlock = isinstance(error.__cause__, psycopg.errors.DeadlockDetected)
                if not deadlock or connection.in_atomic_block or attempt == DEADLOCK_ATTEMPTS:
                    raise
                logger.warning("deadlock", what=act.__qualname__, attempt=attempt)
        raise AssertionError("unreachable")

    return acted


def is_unavailable(error: BaseException) -> bool:
    """Return whether the error will go away once the database is available and writable again.

    After a failover, a process may still be connected to a server that is no longer the primary.
    This also includes a session that the database terminated because it was idle in a transaction
    for too long, since the request is not to blame for that.
    """
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, Error) and isinstance(error.__cause__, _ELSEWHERE)
    )


def answers(error: Error) -> bool:
    """Return whether the database is up despite this error: a timeout or a lock conflict."""
    return took_too_long(error) or was_in_the_way(error)
