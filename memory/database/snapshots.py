"""A consistent view of the whole database at one moment, while writes continue."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def snapshot() -> Iterator[None]:
    """Let the block see the database as of the block's first query; the block cannot write.

    The block is a transaction of its own, so it cannot be nested in another one.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
