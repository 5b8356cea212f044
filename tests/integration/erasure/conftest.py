"""A person who is erased, and the proof that nothing is left."""

from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import pytest
from django.db import connection
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure
from tests.conftest import new_client
from tests.integration.races.conftest import just_before as just_before
from tests.rows import as_text
from tests.waiting import eventually
from workers import tasks

# The text that nobody may find again.
MARKER = "Wolframite"


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """A client of the API whose key may erase."""
    return new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)


def finish(user: MemoryUser) -> UserErasure:
    """Work on the erasure of a user until it is done, and return it.

    Any transaction in the meantime, such as an autoanalyze, delays it for a while.
    """
    eventually(lambda: go_on(user, passes=1).due_at is None)
    return UserErasure.objects.get(user=user)


def go_on(user: MemoryUser, passes: int = 3) -> UserErasure:
    """Work on the erasure of a user so many times, done or not, and return it."""
    row = UserErasure.objects.get(user=user)
    with ExitStack() as stack:
        if connection.in_atomic_block:  # the test's own transaction began before, and stays open
            stack.enter_context(mock.patch.object(user_erasure, "_transactions", return_value=0))
        for _ in range(passes):
            UserErasure.objects.filter(pk=row.pk).update(run_after=row.created_at)
            tasks.work("erasures", str(row.pk))
    row.refresh_from_db()
    return row


def found(marker: str = MARKER) -> list[str]:
    """Yield where the marker is in the database, in any table: its name, and the row."""
    return [place for place in _cells() if marker.lower() in place.lower()]


def _cells() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT * FROM "{table}"')
            names = [column.name for column in cursor.description or ()]
            for row in cursor.fetchall():
                for name, value in zip(names, row, strict=True):
                    yield f"{table}.{name}: {as_text(value)}"
