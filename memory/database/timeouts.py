"""How long a process waits for the database, and what it means when that was not long enough.

A request must not hang, a worker may take longer, and a command of the operator's (`migrate`,
`verify`) as long as it needs: so the limits are set by the kind of process, at each connection.
"""

import functools
import time
from typing import Literal

import psycopg
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connections
from django.db.models import Model

Kind = Literal["web", "worker"]

# Canceled by a time limit, or to end a deadlock: the transaction is undone, and may do next time.
_TOO_LONG = psycopg.errors.QueryCanceled
_ELSEWHERE = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def hold_to(kind: Kind) -> None:
    """Hold the connections that this process opens from now on to the limits of its kind.

    A pooler that gives a connection to others after each transaction takes no such options: there
    they are set for the role (docs/operations.md).
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
    options["options"] = " ".join([*told, *own])  # what the URL says comes last, and holds


@functools.cache
def columns_of(model: type[Model]) -> str:
    """Name the columns of a model's table, for SQL. All of them at the moment would be one more
    after a migration, and a statement that was prepared before it would fail."""
    return ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)


def took_too_long(error: Error) -> bool:
    """Tell whether a statement was ended by its time limit."""
    return isinstance(error.__cause__, _TOO_LONG)


def refuse_after(began: float) -> None:
    """Raise what a statement raises that is ended by its time limit, if several have taken a
    request that long together since `began`, as the monotonic clock tells it."""
    limit = settings.UAC_WEB_STATEMENT_SECONDS
    if limit and time.monotonic() - began > limit:
        raise OperationalError("the statements take too long") from _TOO_LONG()


def was_in_the_way(error: Error) -> bool:
    """Tell whether somebody else held what was to be locked."""
    return isinstance(error.__cause__, _IN_THE_WAY)


def is_unavailable(error: BaseException) -> bool:
    """Tell whether the error passes when the database is there again, and lets itself be written.

    After a failover one may be asked that is not the first any more. A session that was silent in
    a transaction for too long is ended; that, too, is no fault of the request's.
    """
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, Error) and isinstance(error.__cause__, _ELSEWHERE)
    )


def answers(error: Error) -> bool:
    """Tell whether the database is there in spite of this error."""
    return took_too_long(error) or was_in_the_way(error)


def wrong_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    found = {}
    for name in (
        *("UAC_WEB_STATEMENT_SECONDS", "UAC_WEB_LOCK_SECONDS"),
        *("UAC_WORKER_STATEMENT_SECONDS", "UAC_WORKER_LOCK_SECONDS"),
        "UAC_TRANSACTION_IDLE_SECONDS",
    ):
        value = getattr(settings, name)
        if not 0 <= value <= 86_400:
            found[name] = f"From 0 (no limit) to 86400 seconds, not {value}."
    if settings.DATABASE_POOLER not in ("", "transaction"):
        found["DATABASE_POOLER"] = (
            f"transaction, or nothing, not {settings.DATABASE_POOLER!r}: a pooler by session needs"
            " no setting."
        )
    if settings.DATABASE_POOL < 0:
        found["DATABASE_POOL"] = f"At least 0 (no pool), not {settings.DATABASE_POOL}."
    return found
