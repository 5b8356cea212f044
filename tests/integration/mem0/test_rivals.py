"""Two callers at one memory at the same time: each does all of it, or finds it gone."""

import contextlib
from collections.abc import Callable

from memory.integrations.mem0 import memories
from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from tests.rivals import at_once


def test_deleted_memory_keeps_no_correction(live_database: str, user: MemoryUser) -> None:
    # Given memories, each of which somebody updates while another deletes it
    drafts = [Draft(kind=EntryKind.FACT, content=f"secret {number}") for number in range(20)]
    told = [str(entry.pk) for entry in entry_log.append(user, drafts, source="test")]

    def each(do: Callable[[str], object]) -> None:
        for memory_id in told:
            with contextlib.suppress(memories.UnknownMemory):
                do(memory_id)

    def update(memory_id: str) -> None:
        change = memories.Change(memory_id, f"secret of {memory_id}")
        memories.update(user.workspace, change, by="a")

    def delete(memory_id: str) -> None:
        memories.delete(user.workspace, memory_id, by="b")

    # When both go through all of them
    callers = at_once(lambda: each(update), lambda: each(delete))
    # Then nothing of them can be read, corrections included
    assert [caller.error for caller in callers] == [None, None]
    assert not LogEntry.objects.filter(user=user, content__contains="secret").exists()
    assert list(problems(user)) == []
