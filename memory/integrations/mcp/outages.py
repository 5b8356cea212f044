"""The database, as the threads of the process for agents use it."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, close_old_connections
from starlette.exceptions import HTTPException

from memory.kernel.database import timeouts
from memory.kernel.http.errors import Unavailable, describe_database_error


@contextmanager
def using_database() -> Iterator[None]:
    """Raise an HTTPException (503) if a query in the block finds the database unavailable."""
    close_old_connections()
    try:
        yield
    except Error as error:
        if not timeouts.is_unavailable(error):
            raise
        again = {"Retry-After": str(Unavailable.wait)}
        raise HTTPException(503, describe_database_error(error), again) from None
