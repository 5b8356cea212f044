"""A process's time limits for database statements, and the meaning of database errors.

A request must not hang, a worker may take longer, and an operator's command (`migrate`, `verify`)
may take as long as it needs. So the limits depend on the kind of process, and are set on each
connection.
"""

import functools
import time
from typing import Literal

import psycopg
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connections
from django.db.models import Model

Kind = Literal["web", "worker"]

# After each of these errors, the transaction is rolled back and may succeed the next time. The
# three groups: a time limit was exceeded, the session has ended or its server is not the primary,
# or a lock was not available.
_TOO_LONG = psycopg.errors.QueryCanceled
_ELSEWHERE = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def hold_to(kind: Kind) -> None:
    """Apply the limits of this kind of process to the connections that it opens from now on.

    A transaction pooler accepts no such options: behind one, the limits are set for the role
    (docs/operations.md).
    """
    if settings.DATABASE_POOLER == "transaction":
        return
    prefix = "UAC_WEB" if kind == "web" else "UAC_WORKER"
    limits = {
        "statement_timeout": getattr(settings, f"{prefix}_STATEMENT_SECONDS"),
        "lock_timeout": getattr(settings, f"{prefix}_LOCK_SECONDS"),
        "idle_in_transaction_session_timeout": settings.UAC_TRANSACTION_IDLE_SECONDS,
    }
    options = connections.settings["default"]["OPTIONS"]
    own = [options["options"]] if options.get("options") else []
    told = [f"-c {name}={round(seconds * 1000)}" for name, seconds in limits.items()]
    options["options"] = " ".join([*told, *own])  # the URL's options come last and win


@functools.cache
def columns_of(model: type[Model]) -> str:
    """Return the columns of a model's table, for SQL.

    `*` would include a column that a later migration adds, and a statement prepared before that
    migration would fail.
    """
    return ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)


def took_too_long(error: Error) -> bool:
    """Return whether a statement was cancelled by its time limit."""
    return isinstance(error.__cause__, _TOO_LONG)


def refuse_after(began: float) -> None:
    """Raise the error of a statement timeout if a request's statements together exceed the limit.

    `began` is the start of the request by the monotonic clock.
    """
    limit = settings.UAC_WEB_STATEMENT_SECONDS
    if limit and time.monotonic() - began > limit:
        raise OperationalError("the statements of this request take too long") from _TOO_LONG()


def was_in_the_way(error: Error) -> bool:
    """Return whether a lock was not available, or a deadlock occurred."""
    return isinstance(error.__cause__, _IN_THE_WAY)


def is_unavailable(error: BaseException) -> bool:
    """Return whether the error will go away once the database is back and writable.

    After a failover a process may reach a server that is no longer the primary. A session that was
    idle in a transaction for too long is ended; that is not the request's fault either.
    """
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, Error) and isinstance(error.__cause__, _ELSEWHERE)
    )


def answers(error: Error) -> bool:
    """Return whether the database is up in spite of this error."""
    return took_too_long(error) or was_in_the_way(error)
