"""Partitioning the log by user on a running server: `manage.py partition_log`.

Besides the *live* table, `public.memory_logentry`, there is a *spare* table with the same name in
its own schema, which only the owner can access. `copy` brings the spare up to date with the live
table; `swap` exchanges the two tables in one transaction. After the swap, the plain table is the
spare, so another `copy` and `swap` undo the change; `finish` drops the spare. Run these steps as
the role that owns the tables.

Copying is simple because a log only grows: the user's entries missing from the spare are those
after the last one copied, up to the user's `last_seq`. An existing row can change only by being
redacted, which a trigger records.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import OperationalError, connection, transaction

Result = TypeVar("Result")

TABLE = "memory_logentry"
# SCHEMA holds the partitioned table while it is the spare, plus notes on what was copied and
# redacted; PLAIN holds the plain table while that is the spare.
SCHEMA = "log_partitions"
PLAIN = "log_plain"
LOCK_SECONDS = 2.0  # how long a step waits for a lock, while other queries queue up behind the step
ATTEMPTS = 30

# A user's primary key, and two entry numbers: the last entry that the spare table has, and the last
# entry that it should have.
Missing = tuple[int, int, int]

NOTES = f"""
CREATE TABLE {SCHEMA}.copied (user_id bigint PRIMARY KEY, seq bigint NOT NULL);
CREATE TABLE {SCHEMA}.redacted (user_id bigint, seq bigint, PRIMARY KEY (user_id, seq));
CREATE FUNCTION {SCHEMA}.note_redaction() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO {SCHEMA}.redacted VALUES (NEW.user_id, NEW.seq) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
"""  # noqa: S608  # nosec B608 # names of our own
NOTE = f"""
CREATE TRIGGER note_redaction AFTER UPDATE ON public.{TABLE}
    FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.note_redaction()
"""
BEHIND = f"""
SELECT person.id, coalesce(copied.seq, 0), person.last_seq
FROM public.memory_memoryuser AS person LEFT JOIN {SCHEMA}.copied ON copied.user_id = person.id
WHERE person.last_seq > coalesce(copied.seq, 0) ORDER BY person.id
"""  # noqa: S608  # nosec B608 # names of our own
# Copy user by user, through the index; otherwise the planner might read the whole log for each
# batch.
COPY = """
INSERT INTO {spare} ({columns}) SELECT {columns} FROM (
    SELECT entry.* FROM unnest(%(users)s::bigint[], %(after)s::bigint[], %(until)s::bigint[])
        AS wanted (who, after, until)
    CROSS JOIN LATERAL (
        SELECT * FROM public.{table} WHERE user_id = who AND seq > after AND seq <= until
        ORDER BY seq OFFSET 0
    ) AS entry
) AS entries
"""
COPIED = f"""
INSERT INTO {SCHEMA}.copied SELECT who, max(until)
FROM unnest(%(users)s::bigint[], %(until)s::bigint[]) AS batch (who, until) GROUP BY who
ON CONFLICT (user_id) DO UPDATE SET seq = excluded.seq
"""  # noqa: S608  # nosec B608 # names of our own
REDACT = """
WITH noted AS (DELETE FROM {schema}.redacted RETURNING user_id, seq)
UPDATE {spare} AS spare SET ({columns}) = ROW({values})
FROM noted JOIN public.{table} AS live USING (user_id, seq)
WHERE spare.user_id = live.user_id AND spare.seq = live.seq AND spare.redacted_at IS NULL
"""
DIFFERENT = """
SELECT count(*) FROM {schema}.copied
JOIN public.{table} AS live ON live.user_id = copied.user_id AND live.seq <= copied.seq
LEFT JOIN {spare} AS spare ON spare.user_id = live.user_id AND spare.seq = live.seq
WHERE live::text IS DISTINCT FROM spare::text
    AND NOT EXISTS (
        SELECT FROM {schema}.redacted
        WHERE redacted.user_id = live.user_id AND redacted.seq = live.seq)
"""


class NotNow(Exception):
    """The step cannot be carried out in the current state; the message explains why."""


@dataclass(frozen=True)
class PartitionProgress:
    """The progress of the partitioning: the live table, the spare, and the users still to copy.

    `partitioned` indicates whether the live table is partitioned, `spare` is the spare's schema (if
    there is a spare), and `behind` is the number of users with entries missing from the spare.
    """

    partitioned: bool
    spare: str | None
    behind: int


def state() -> PartitionProgress:
    """Read the current progress from the database."""
    kinds = _tables()
    spare = next((schema for schema in (SCHEMA, PLAIN) if schema in kinds), None)
    return PartitionProgress(kinds["public"] == "p", spare, len(_select(BEHIND)) if spare else 0)


def prepare(partitions: int) -> None:
    """Create the spare table with the given number of partitions.

    Raises NotNow if the spare table already exists, if the tables are already swapped, or if
    foreign keys refer to the log.
    """
    if _tables() != {"public": "r"}:
        raise NotNow(
            "the partitions were already prepared, or the tables already swapped: see `status`"
        )
    if referring := _select(
        "SELECT conname FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass",
        f"public.{TABLE}",
    ):
        raise NotNow(f"these foreign keys refer to the log: {referring}")
    _patiently(lambda: _prepare(partitions))


def copy(
    report: Callable[[int], None] = lambda copied: None, *, batch: int = 20_000, jobs: int = 4
) -> int:
    """Bring the spare table up to date with the live table while writes continue.

    `batch` is the maximum number of rows per transaction, and `jobs` is the number of connections.
    Returns the number of entries copied; `report` is called after each batch with the number of
    entries in the batch. Copying can be stopped at any time; the next call resumes where it left
    off.
    """
    spare = _spare()
    behind = _select(BEHIND)

    def part(users: Sequence[Missing]) -> int:
        copied = 0
        try:
            for some in _batches(users, batch):
                number = _catch_up(spare, some)
                report(number)
                copied += number
        finally:
            connection.close()
        return copied

    # Each user is assigned to one connection, so the batches of a long log are copied in order.
    with ThreadPoolExecutor(jobs) as executor:
        done = sum(executor.map(part, (behind[number::jobs] for number in range(jobs))))
    if spare.startswith(SCHEMA):
        _index(spare)
    _redact(spare)
    with connection.cursor() as cursor:
        # Autovacuum analyses the partitions of a table, but not the partitioned table itself.
        cursor.execute(f"ANALYZE {spare}")
    return done


def differences() -> int:
    """Compare all copied rows with the originals; return the number of rows that differ."""
    with transaction.atomic():
        ((number,),) = _select(DIFFERENT.format(spare=_spare(), table=TABLE, schema=SCHEMA))
    return int(number)


def swap() -> float:
    """Swap the live and spare tables; return how many seconds the log was locked for.

    Raises NotNow if `copy` has to run first, or if a long transaction keeps using the log.
    """
    spare = _spare()
    most = 20_000
    if sum(until - after for _, after, until in _select(BEHIND)) > most:
        raise NotNow(f"more than {most} entries still have to be copied: run `copy` first")
    return _patiently(lambda: _swap(spare))


def finish() -> None:
    """Drop the spare table and the notes. This can't be undone."""
    partitioned = _tables()["public"] == "p"
    spare = _spare()

    def throw_away() -> None:
        with _steps() as execute:
            execute(f"DROP TRIGGER note_redaction ON public.{TABLE}")
            execute(f"DROP TABLE {spare}")
            execute(f"DROP TABLE {SCHEMA}.copied, {SCHEMA}.redacted")
            execute(f"DROP FUNCTION {SCHEMA}.note_redaction")
            execute(f"DROP SCHEMA IF EXISTS {PLAIN}")
            if not partitioned:
                execute(f"DROP SCHEMA {SCHEMA}")

    _patiently(throw_away)


def _patiently(do: Callable[[], Result]) -> Result:
    """Retry a step until it acquires its lock, waiting only briefly on each attempt.

    Other queries queue up behind a waiting step, so a step must not wait for long. Raises NotNow
    after ATTEMPTS attempts.
    """
    for _ in range(ATTEMPTS):
        try:
            return do()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") not in ("55P03", "40P01"):
                raise
            time.sleep(LOCK_SECONDS / 2)
    raise NotNow(
        "other transactions held locks on the log at every attempt: look for long-running ones in"
        " pg_stat_activity"
    )


def _prepare(partitions: int) -> None:
    spare = f"{SCHEMA}.{TABLE}"
    with _steps() as execute:
        execute(f"CREATE SCHEMA {SCHEMA}")
        execute(NOTES)
        execute(
            f"CREATE TABLE {spare} (LIKE public.{TABLE} INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
            " INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS)"
            " PARTITION BY HASH (user_id)"
        )
        for number in range(partitions):
            execute(
                f"CREATE TABLE {spare}_{number:02} PARTITION OF {spare}"
                f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            )
        for name, kind, definition in _select(
            "SELECT conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conrelid = %s::regclass AND contype IN ('p', 'u', 'f') ORDER BY contype",
            f"public.{TABLE}",
        ):
            # The keys of a partitioned table must contain the partition key, `user_id`. Entry ids
            # are random, so their uniqueness across users need not be enforced.
            if kind == "p":
                definition = "PRIMARY KEY (id, user_id)"
            elif "user_id" not in definition:
                raise NotNow(f"the constraint {name} does not include user_id: {definition}")
            execute(f'ALTER TABLE {spare} ADD CONSTRAINT "{name}" {definition}')
        execute(NOTE)


def _swap(spare: str) -> float:
    schema, _, _ = spare.partition(".")
    away = PLAIN if schema == SCHEMA else SCHEMA
    with _steps() as execute:
        execute("SET CONSTRAINTS ALL IMMEDIATE")
        execute(f"LOCK TABLE public.{TABLE} IN ACCESS EXCLUSIVE MODE")
        started = time.perf_counter()
        for users in _batches(_select(BEHIND), 20_000):
            _catch_up(spare, users)
        _redact(spare)
        if spare.startswith(SCHEMA):
            _guard(execute, spare)
        execute(f"DROP TRIGGER note_redaction ON public.{TABLE}")
        execute(f"CREATE SCHEMA IF NOT EXISTS {away}")
        execute(f"ALTER TABLE public.{TABLE} SET SCHEMA {away}")
        execute(f"ALTER TABLE {spare} SET SCHEMA public")
        execute(NOTE)
    return time.perf_counter() - started


def _guard(execute: Callable[[str], None], spare: str) -> None:
    """Give the spare table the live table's triggers and privileges."""
    parts = _column(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", spare
    )
    there = _column("SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass", spare)
    for name, definition, of_rows in _select(
        "SELECT tgname, pg_get_triggerdef(oid), tgtype & 1 = 1 FROM pg_trigger"
        " WHERE tgrelid = %s::regclass AND NOT tgisinternal AND tgname <> 'note_redaction'",
        f"public.{TABLE}",
    ):
        if name in there:
            continue
        # PostgreSQL creates row triggers on the partitions automatically, but not statement
        # triggers.
        for table in [spare] if of_rows else [spare, *parts]:
            execute(definition.replace(f" ON public.{TABLE} ", f" ON {table} "))
    for role, privilege in _select(
        "SELECT grantee::regrole::text, privilege_type FROM pg_class, aclexplode(relacl)"
        " WHERE oid = %s::regclass AND grantee <> relowner AND grantee <> 0",
        f"public.{TABLE}",
    ):
        execute(f"GRANT {privilege} ON {spare} TO {role}")


def _index(spare: str) -> None:
    """Create the live table's remaining indexes on the spare, without blocking other queries."""
    there = _column(
        "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
        " WHERE indrelid = %s::regclass",
        spare,
    )
    for name, definition in _select(
        "SELECT relname, pg_get_indexdef(indexrelid) FROM pg_class"
        " JOIN pg_index ON indexrelid = pg_class.oid WHERE indrelid = %s::regclass",
        f"public.{TABLE}",
    ):
        if name not in there:
            with connection.cursor() as cursor:
                cursor.execute(definition.replace(f" ON public.{TABLE} ", f" ON {spare} "))


def _catch_up(spare: str, users: Sequence[Missing]) -> int:
    whose, after, until = (list(column) for column in zip(*users, strict=True))
    values = {"users": whose, "after": after, "until": until}
    with transaction.atomic(), connection.cursor() as cursor:
        columns = ", ".join(_columns())
        cursor.execute(COPY.format(spare=spare, table=TABLE, columns=columns), values)
        number = int(cursor.rowcount)
        if number != sum(until) - sum(after):
            raise NotNow(
                f"the log lacks entries: it has {number} but should have {sum(until) - sum(after)}"
            )
        cursor.execute(COPIED, values)
    return number


def _redact(spare: str) -> None:
    columns = [name for name in _columns() if name not in ("id", "user_id", "seq")]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            REDACT.format(
                schema=SCHEMA,
                spare=spare,
                table=TABLE,
                columns=", ".join(columns),
                values=", ".join(f"live.{name}" for name in columns),
            )
        )


def _batches(behind: Sequence[Missing], most: int) -> Iterator[list[Missing]]:
    """Split the missing entries, even a single user's, into batches of at most `most`."""
    part: list[Missing] = []
    room = most
    for user, after, until in behind:
        while after < until:
            end = min(until, after + room)
            part.append((user, after, end))
            room -= end - after
            after = end
            if not room:
                yield part
                part, room = [], most
    if part:
        yield part


def _columns() -> list[str]:
    return _column(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum",
        f"public.{TABLE}",
    )


def _tables() -> dict[str, str]:
    """Map each schema with a log table to the table's kind: plain (r) or partitioned (p)."""
    found = _select(
        "SELECT relnamespace::regnamespace::text, relkind::text FROM pg_class"
        " WHERE relname = %s AND relkind IN ('r', 'p')",
        TABLE,
    )
    return {schema: kind for schema, kind in found if schema in ("public", SCHEMA, PLAIN)}


def _spare() -> str:
    for schema in _tables().keys() - {"public"}:
        return f"{schema}.{TABLE}"
    raise NotNow("there is no spare table: run `prepare` first")


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that executes statements, all in one transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        yield cursor.execute


def _column(statement: str, parameter: str) -> list[str]:
    return [value for (value,) in _select(statement, parameter)]


def _select(statement: str, *parameters: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
