"""Time limits for a process's database statements, and what database errors mean.

A request must not hang, a worker may take longer, and an operator's command (`migrate`, `verify`)
may take as long as it needs. So the limits depend on the kind of process, and each process sets
them on its own connections.
"""

import functools
import time
from typing import Literal

import psycopg
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connections
from django.db.models import Model

Kind = Literal["web", "worker"]

# After any of these errors, the transaction has been rolled back and may succeed if repeated. The
# three groups: a time limit was exceeded; the session was ended, or its server is not the primary;
# a lock was not available.
_TOO_LONG = psycopg.errors.QueryCanceled
_ELSEWHERE = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def hold_to(kind: Kind) -> None:
    """Apply the limits for this kind of process to the connections that it opens from now on.

    A transaction pooler does not accept such options: behind one, the operator sets the limits for
    the database role (docs/operations.md).
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
    options["options"] = " ".join([*told, *own])  # DATABASE_URL's options come last and win


@functools.cache
def columns_of(model: type[Model]) -> str:
    """Return the quoted column names of a model's table, to be listed in SQL.

    `*` would include a column that a later migration adds, and a statement prepared before that
    migration would fail.
    """
    return ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)


def took_too_long(error: Error) -> bool:
    """Return whether the error means that a statement hit its time limit and was cancelled."""
    return isinstance(error.__cause__, _TOO_LONG)


def refuse_after(began: float) -> None:
    """Raise a statement-timeout error if a request has used up its time limit for statements.

    `began` is when the request began, on the monotonic clock.
    """
    limit = settings.UAC_WEB_STATEMENT_SECONDS
    if limit and time.monotonic() - began > limit:
        raise OperationalError("this request's database statements took too long") from _TOO_LONG()


def was_in_the_way(error: Error) -> bool:
    """Return whether the error means that a lock was not available or that a deadlock occurred."""
    return isinstance(error.__cause__, _IN_THE_WAY)


def is_unavailable(error: BaseException) -> bool:
    """Return whether the error will go away once the database is available and writable again.

    After a failover, a process may still be connected to a server that is no longer the primary. A
    session that the database ended because it was idle in a transaction for too long counts as
    well, since the request is not to blame for that.
    """
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, Error) and isinstance(error.__cause__, _ELSEWHERE)
    )


def answers(error: Error) -> bool:
    """Return whether the database is up despite this error: it was too slow, or a lock was held."""
    return took_too_long(error) or was_in_the_way(error)
