"""What looking ahead costs: a tick of beat, a year beside a day, and what is looked at again.

- A tick with 1,000, 10,000 and 100,000 users, of whom a hundred are due, in three databases of one
  server, in turn; also the pages that its statements read, which no other work on the machine can
  change. The users have had versions, runs, alerts, messages and forecasts; a tenth of them wait
  for a language model that nobody has set.
- Twenty constraints on 500 records, half of which take no day, looked ahead at for a day and for a
  year, in turn. Where each can be followed; where something changes on each day of the year; and
  where none can be followed, so that each day is tried.
- One record of ten domains with two constraints each changes: how many calls it takes again.
"""

import datetime
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import docker_sandboxes, json_path, report

SIZES = (1_000, 10_000, 100_000)
DUE = 100
TICKS = 15
ROUNDS = 11
RECORDS = 500
CONSTRAINTS = 20
DOMAINS = 10
START = datetime.datetime(2027, 1, 4, 9, tzinfo=datetime.UTC)
ZONE = "Europe/Berlin"
DAY = datetime.timedelta(days=1)
YEAR = 365 * DAY

# -- A tick ---------------------------------------------------------------------------------------


@contextmanager
def databases(owner_url: str) -> Iterator[dict[int, str]]:
    """For each size a clone of the migrated database; yields their names. Then the first again."""
    import psycopg
    from django.db import connection

    first = connection.settings_dict["NAME"]
    connection.close()
    names = {size: f"sweep_{size}" for size in SIZES}
    address = urlsplit(owner_url)._replace(path="/postgres").geturl()
    with psycopg.connect(address, autocommit=True) as owner:
        for name in names.values():
            owner.execute(f"CREATE DATABASE {name} TEMPLATE {first}")
    try:
        yield names
    finally:
        switch(first)


def switch(name: str) -> None:
    """Have Django work in that database of the same server."""
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = name
    connection.ensure_connection()


def populate(size: int) -> None:
    """Make so many users with what users have; none is due."""
    from django.db import connection

    from memory.models import (
        Alert,
        Blob,
        Checkpoint,
        EntryOutcome,
        Forecast,
        IdempotencyKey,
        Lane,
        LogEntry,
        MemoryUser,
        Run,
        Workspace,
    )

    template = one_of_each(Workspace.objects.create(name="everybody"))
    with connection.cursor() as cursor:
        users = "gen_random_uuid()", "original.user_id || '-' || number"
        columns = _columns(MemoryUser, public_id=users[0], user_id=users[1], head_id="NULL")
        cursor.execute(
            f"INSERT INTO memory_memoryuser ({', '.join(columns)})"
            f" SELECT {', '.join(columns.values())} FROM memory_memoryuser AS original,"
            " generate_series(2, %s) AS number WHERE original.id = %s",
            [size, template.pk],
        )
        version = "(SELECT id FROM memory_checkpoint WHERE user_id = person.id)"
        for model, own in (
            (LogEntry, {}),
            (EntryOutcome, {"checkpoint_id": "NULL"}),
            (Blob, {}),
            (Checkpoint, {}),
            (Lane, {}),
            (Run, {"checkpoint_id": version}),
            (Alert, {"opened_by_id": "NULL", "last_run_id": "NULL"}),
            (IdempotencyKey, {"key": "original.key || '-' || person.id"}),
            (Forecast, {"checkpoint_id": version}),
        ):
            columns = _columns(model, **own, user_id="person.id")
            cursor.execute(
                f"INSERT INTO {model._meta.db_table} ({', '.join(columns)})"
                f" SELECT {', '.join(columns.values())}"
                f" FROM {model._meta.db_table} AS original, memory_memoryuser AS person"
                " WHERE original.user_id = %s AND person.id <> %s ORDER BY person.id, original.id",
                [template.pk, template.pk],
            )
        cursor.execute(
            "UPDATE memory_memoryuser AS person SET head_id = version.id,"
            " constraints_due_at = %s + (person.id %% 180 + 1) * interval '1 day'"
            " FROM memory_checkpoint AS version WHERE version.user_id = person.id",
            [datetime.datetime.now(datetime.UTC)],
        )
        cursor.execute(
            "UPDATE memory_forecast AS forecast SET wakes_at = person.constraints_due_at"
            " FROM memory_memoryuser AS person WHERE person.id = forecast.user_id"
        )
        cursor.execute(
            "UPDATE memory_lane SET due_at = now() - interval '1 day', waiting = 1"
            " WHERE name = 'structure' AND user_id % 10 = 0"
        )
        # As the autovacuum does after so many new rows.
        cursor.execute("VACUUM ANALYZE")


