"""The anonymous user who is merged."""

import pytest

from memory.models import LogEntry, MemoryUser, Workspace
from memory.users import create_user


@pytest.fixture
def anon(workspace: Workspace) -> MemoryUser:
    return create_user(workspace, "anon-123", metadata=None)


def contents(user: MemoryUser) -> list[str | None]:
    entries = LogEntry.objects.filter(user=user).order_by("seq")
    return list(entries.values_list("content", flat=True))
