"""The anonymous user who is merged."""

import pytest

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import LogEntry


@pytest.fixture
def anon(workspace: Workspace) -> MemoryUser:
    return create_user(workspace, "anon-123", metadata=None)


def contents(user: MemoryUser) -> list[str | None]:
    entries = LogEntry.objects.filter(user=user).order_by("seq")
    return list(entries.values_list("content", flat=True))
