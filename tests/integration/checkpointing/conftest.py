"""Helpers of the checkpoint tests: typed entries in, the project out."""

from collections.abc import Callable
from typing import Any

import pytest

from memory import checkpoints, log
from memory.log import Draft
from memory.models import EntryOutcome, MemoryUser
from memory.models.log import EntryKind
from workers import tasks

Append = Callable[..., list[int]]
Records = Callable[[str], dict[str, Any]]


@pytest.fixture
def append(user: MemoryUser) -> Append:
    """Append typed entries without working on them; return their seqs."""

    def do(*statements: dict[str, Any]) -> list[int]:
        drafts = [Draft(kind=EntryKind.RECORD, data=statement) for statement in statements]
        return [entry.seq for entry in log.append(user, drafts, source="test")]

    return do


@pytest.fixture
def checkpoint(user: MemoryUser, append: Append) -> Append:
    """Append typed entries and settle them; return their seqs."""

    def do(*statements: dict[str, Any]) -> list[int]:
        seqs = append(*statements)
        tasks.checkpoint_records(user.pk)
        user.refresh_from_db()
        return seqs

    return do


@pytest.fixture
def source_of(user: MemoryUser) -> Callable[[str], str]:
    """Return the source of a file of the newest version."""

    def do(path: str) -> str:
        user.refresh_from_db()
        assert user.head is not None
        return checkpoints.read_file(user.head, path)

    return do


@pytest.fixture
def verdicts(user: MemoryUser) -> Callable[[], dict[int, tuple[str, str]]]:
    """Return seq → (outcome, reason) of every entry that has one."""

    def do() -> dict[int, tuple[str, str]]:
        rows = EntryOutcome.objects.filter(user=user)
        return {row.seq: (row.outcome, row.reason) for row in rows}

    return do


def trip(to: str = "Rome", **fields: Any) -> dict[str, Any]:
    """Return a typed entry of a trip with this key."""
    key = {"key": fields.pop("key")} if "key" in fields else {}
    return {"domain": "travel", "type": "Trip", "data": {"to": to, **fields}, **key}
