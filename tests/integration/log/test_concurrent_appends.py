"""Concurrent writers: no gap, no double, no broken link."""

import functools

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from tests.rivals import at_once


def message(text: str) -> Draft:
    return Draft(kind=EntryKind.MESSAGE, content=text, role="user")


def test_concurrent_appends_leave_no_gap(live_database: str, user: MemoryUser) -> None:
    def write(writer: int) -> None:
        for number in range(20):
            entry_log.append(
                user, [message(f"{writer}/{number}")] * (1 + number % 3), source="test"
            )

    writers = at_once(*(functools.partial(write, number) for number in range(8)))

    assert [writer.error for writer in writers] == [None] * 8
    expected = 8 * sum(1 + number % 3 for number in range(20))
    seqs = list(LogEntry.objects.filter(user=user).values_list("seq", flat=True))
    assert sorted(seqs) == list(range(1, expected + 1))
    assert list(problems(user)) == []
