"""Check the database and Redis before a process starts, and report any problems.

Each problem is reported with the setting that causes it and a fix.
"""

from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, InterfaceError, NotSupportedError, connection
from django.db.migrations.executor import MigrationExecutor

from memory.kernel.database.timeouts import Kind
from memory.kernel.work.hints import redis_client

# The type of process that is starting; None if only the checks are being run.
starting: Kind | None = None

# Maps a phrase in an error from PostgreSQL, Redis or their clients to an explanation for the
# operator.
_REDIS_CAUSES = {
    "certificate verify failed": "The server's certificate has expired, is for another name, or is"
    " not signed by the authority in ssl_ca_certs.",
    "No such file": "Name a file in ssl_ca_certs with the certificate of the authority.",
}
_CAUSES = {
    "password authentication failed": "The user name or password is wrong.",
    "no password supplied": "Put a password in the URL: postgres://uac:password@host:5432/uac.",
    "certificate file": "Name a file in sslrootcert with the certificate of the authority, which"
    " this process can read.",
    "does not exist": "Create the roles and the database with uac_site/database_roles.sql.",
    "resolve host": "The host name is wrong, or cannot be resolved on this machine.",
    "could not translate host": "The host name is wrong, or cannot be resolved on this machine.",
    "refused": "Nothing is listening on that port: check the host and port, and that PostgreSQL is"
    " running.",
    "timeout": "The host does not respond: check its name, and any firewall in between.",
    "too many": "PostgreSQL has no connections left: docs/operations.md says how many are needed.",
    "certificate verify failed": "The server's certificate has expired, or is not signed by the"
    " authority in sslrootcert.",
    "does not match host name": "The server's certificate is for another name: use one of its names"
    " in DATABASE_URL.",
    "no pg_hba.conf entry": "PostgreSQL's pg_hba.conf does not allow this machine or role.",
}


def is_named() -> bool:
    """Return whether DATABASE_URL is set and names a PostgreSQL server."""
    engine = settings.DATABASES.get("default", {}).get("ENGINE")
    return bool(engine == "uac_site.database")


def check_database() -> Iterator[CheckMessage]:
    """Yield the problems with the database at DATABASE_URL."""
    if not is_named():
        return  # another check reports an unusable DATABASE_URL
    try:
        with connection.cursor() as cursor:
            yield from _role(cursor)
            yield from _migrations()
    except NotSupportedError as error:
        yield Error(
            f"The database at DATABASE_URL is too old: {error}",
            hint="Upgrade PostgreSQL.",
            id="uac.E024",
        )
    except (DatabaseError, InterfaceError) as error:
        message = " ".join(str(error).split())
        causes = (cause for words, cause in _CAUSES.items() if words in message)
        yield Error(
            f"The database does not answer: {message}",
            hint="Check DATABASE_URL. " + next(causes, "Check that PostgreSQL is running."),
            id="uac.E020",
        )


def _role(cursor: Any) -> Iterator[CheckMessage]:
    # A role can switch to any role that it is a member of, directly or indirectly.
    cursor.execute(
        "SELECT bool_or(rolsuper) FROM pg_roles WHERE pg_has_role(current_user, oid, 'MEMBER')"
    )
    (superuser,) = cursor.fetchone()
    cursor.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND pg_has_role(current_user, relowner, 'MEMBER')"
    )
    (owned,) = cursor.fetchone()
    if superuser or owned:
        power = "a superuser" if superuser else f"the owner of {owned} tables or indexes"
        yield Error(
            f"The database role in DATABASE_URL is {power}, or a member of such a role: it could"
            " switch off the triggers that keep the log append-only.",
            hint="Create the roles in uac_site/database_roles.sql; migrate as uac_owner"
            " and run the server as uac.",
            id="uac.E021",
        )


def _migrations() -> Iterator[CheckMessage]:
    executor = MigrationExecutor(connection)
    missing = [str(one) for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    if missing:
        yield Error(
            f"The database at DATABASE_URL is missing migrations: {len(missing)}, starting with"
            f" {missing[0]}.",
            hint="Run `manage.py migrate` with the owner's DATABASE_URL (uac_owner).",
            id="uac.E025",
        )


def check_redis() -> Iterator[CheckMessage]:
    """Yield the problems with the Redis server at REDIS_URL."""
    if not settings.REDIS_URL:
        return  # another check reports a missing REDIS_URL
    try:
        client = redis_client()
        memory: Any = client.info("memory")
        replication: Any = client.info("replication")
        yield from _policy(memory)
        if replication.get("role") == "slave":
            yield _wrong("is a read-only replica.", "Use the URL of the primary.")
        else:
            client.set("uac:started", 1, ex=60)
    except ValueError as error:
        yield _wrong(f"is not a valid URL: {error}", "Use redis://:password@host:6379/0.")
    except redis.AuthenticationError as error:
        yield _wrong(f"rejects the login: {error}", "Check the password and any user name.")
    except redis.OutOfMemoryError:
        yield Warning(
            "The Redis server at REDIS_URL is full: no wake-up notifications can be sent, so all"
            " work is delayed.",
            hint="Increase its maxmemory. The queues drain as workers process their tasks.",
            id="uac.W029",
        )
    except redis.ResponseError as error:
        yield _wrong(f"rejects a command: {error}", "Check the password and the permissions.")
    except redis.RedisError as error:
        yield _silent(error)


def _policy(memory: Any) -> Iterator[CheckMessage]:
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return
    problem = f"has maxmemory-policy {policy}: when full, it evicts"
    advice = "Set maxmemory-policy to noeviction, with CONFIG SET and in the configuration file."
    if policy.startswith("allkeys-") and not settings.DEVELOPMENT:
        yield _wrong(f"{problem} queues.", advice)
    else:
        yield Warning(
            f"The Redis server at REDIS_URL {problem} signals.", hint=advice, id="uac.W028"
        )


def _wrong(what: str, advice: str) -> CheckMessage:
    return Error(f"The Redis server at REDIS_URL {what}", hint=advice, id="uac.E027")


def _silent(error: redis.RedisError) -> CheckMessage:
    # A web process can serve requests without Redis, but a worker wouldn't get any wake-up hints.
    level = Warning if starting == "web" else Error
    causes = (cause for words, cause in _REDIS_CAUSES.items() if words in str(error))
    return level(
        f"The Redis server at REDIS_URL does not answer: {error}",
        hint="Check REDIS_URL. " + next(causes, "Check that Redis is running."),
        id="uac.W027" if level is Warning else "uac.E028",
    )
