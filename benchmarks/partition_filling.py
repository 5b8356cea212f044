"""Fill the log for `partition`: many users' entries, and a sample of logs that can be verified."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from memory.models import MemoryUser

SAMPLED_ENTRIES = 500
ROUND = 50  # how many of a user's entries are written in a row, before the next user's

PEOPLE = """
INSERT INTO memory_memoryuser (public_id, workspace_id, user_id, time_zone, metadata, created_at,
    last_seq, last_hash, log_bytes, alerts_version)
SELECT gen_random_uuid(), (SELECT min(id) FROM memory_workspace), 'filled-' || n, 'UTC', '{}',
    now(), 0, decode(repeat('00', 32), 'hex'), 0, 0
FROM generate_series(1, %(users)s) n
"""
# One user in a hundred has 12 times the average number of entries, one in ten has 2.5 times.
LENGTHS = """
CREATE TEMPORARY TABLE filling AS
SELECT id AS user_id, place, greatest(1, round(%(rows)s / %(users)s::numeric / 0.975
    * CASE WHEN place %% 100 = 0 THEN 12 WHEN place %% 10 = 0 THEN 2.5 ELSE 0.7 END))::int AS length
FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser
    WHERE user_id LIKE 'filled-%%') AS people
WHERE place %% %(jobs)s = %(job)s
"""
ENTRIES = """
INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at, recorded_at, derived_from,
    content, data, session_id, role, source, salt, payload_hash, hash)
SELECT gen_random_uuid(), user_id, seq, kind, at, at,
    CASE WHEN kind = 'fact' THEN ARRAY[seq - 1] ELSE '{}'::bigint[] END,
    CASE WHEN kind <> 'record' THEN substr(%(text)s, 1 + noise %% 300, 60 + noise / 300 %% 340) END,
    CASE WHEN kind = 'record' THEN json_build_object('domain', 'travel', 'type', 'Trip', 'key',
        'trip-' || seq, 'data', json_build_object('name', 'City ' || seq, 'cost', noise)) END,
    'session-' || seq / 30, CASE WHEN kind = 'message' THEN 'user' END, 'key:benchmark',
    decode(md5(user_id || '/' || seq), 'hex'), sha256(int8send(seq)),
    sha256(int8send(user_id + seq))
FROM filling
CROSS JOIN LATERAL generate_series(%(after)s + 1, least(length, %(after)s + %(round)s)) AS seq
CROSS JOIN LATERAL (SELECT abs(hashint8(user_id * 1000003 + seq)) AS noise,
    now() - interval '365 days' + (seq * interval '365 days' + place * interval '1 second')
        / (length + 1) AS at,
    CASE seq %% 20 WHEN 3 THEN 'record' WHEN 11 THEN 'record' WHEN 17 THEN 'record'
        ELSE CASE WHEN seq %% 4 = 2 THEN 'fact' ELSE 'message' END END AS kind) AS made
WHERE length > %(after)s
ORDER BY seq, user_id
"""
ENDS = """
UPDATE memory_memoryuser SET last_seq = length
FROM filling WHERE filling.user_id = memory_memoryuser.id
"""
LANES = """
INSERT INTO memory_lane (user_id, name, cursor_seq, waiting, run_after, lease_owner, token,
    attempts, last_error)
SELECT user_id, name, greatest(0, length - 60), 0, now(), '', 0, 0, ''
FROM filling CROSS JOIN (VALUES ('records'), ('structure')) AS names (name)
"""
TEXT = (
    "We booked the hotel in Rome from the 3rd to the 7th of May, 840 euros for both of us, and the"
    " train from Termini on the last day. My sister comes with us, she is allergic to penicillin"
    " and does not eat nuts. In the autumn I would rather stay at home and work on the garden. "
) * 3


def fill(rows: int, users: int, jobs: int = 4) -> int:
    """Fill the log with about `rows` entries for `users` users; return how many there are.

    The connection must be that of the table's owner.
    """
    from django.db import connection

    values: dict[str, int | str] = {"rows": rows, "users": users, "round": ROUND, "text": TEXT}

    def part(job: int) -> int:
        try:
            with connection.cursor() as cursor:
                cursor.execute(LENGTHS, {**values, "jobs": jobs, "job": job})
                for after in range(0, int(rows / users / 0.975 * 12) + 1, ROUND):
                    cursor.execute(ENTRIES, {**values, "after": after})
                cursor.execute(ENDS)
                cursor.execute(LANES)
                cursor.execute("SELECT sum(length) FROM filling")
                return int(cursor.fetchone()[0])
        finally:
            connection.close()

    with connection.cursor() as cursor:
        cursor.execute(PEOPLE, values)
    with without_indexes(), ThreadPoolExecutor(jobs) as executor:
        number = sum(executor.map(part, range(jobs)))
    with connection.cursor() as cursor:
        for table in ("memory_logentry", "memory_memoryuser", "memory_lane"):
            cursor.execute(f"VACUUM (ANALYZE) {table}")
    return number


@contextmanager
def without_indexes() -> Iterator[None]:
    """Drop the indexes that filling does not need, to make it faster; recreate them afterwards."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_get_indexdef(oid) FROM pg_class JOIN pg_index ON indexrelid = oid"
            " WHERE indrelid = 'memory_logentry'::regclass AND NOT indisunique"
        )
        indexes = cursor.fetchall()
        cursor.execute("ALTER TABLE memory_logentry DROP CONSTRAINT memory_logentry_pkey")
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE memory_logentry ADD PRIMARY KEY (id)")
        for _, definition in indexes:
            cursor.execute(definition)


def sample(number: int) -> list["MemoryUser"]:
    """Create `number` users whose logs are written by `log.append`, so that they can be verified.

    All of their entries are settled.
    """
    from memory import log
    from memory.models import EntryOutcome, Lane, Workspace
    from memory.models.log import EntryKind
    from memory.users import create_user

    workspace = Workspace.objects.create(name="partition")
    made = []
    for place in range(number):
        user = create_user(workspace, f"sample-{place}", time_zone="UTC", metadata=None)
        drafts = [log.Draft(kind=EntryKind.MESSAGE, content=TEXT[:200])] * SAMPLED_ENTRIES
        entries = log.append(user, drafts, source="benchmark")
        EntryOutcome.objects.bulk_create(
            EntryOutcome(user=user, seq=entry.seq, outcome="covered") for entry in entries
        )
        Lane.objects.filter(user=user).update(cursor_seq=len(entries))
        made.append(user)
    return made


def as_owner(url: str, what: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function on Django's connection as the role that owns the tables."""
    from django.db import connection

    address, settings = urlsplit(url), connection.settings_dict
    before = {name: settings[name] for name in ("USER", "PASSWORD")}
    connection.close()
    settings.update(USER=address.username, PASSWORD=address.password)
    try:
        return what(*arguments)
    finally:
        connection.close()
        settings.update(before)
