"""A log to search in, and its index."""

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.log import entry_log
from memory.log.models.entries import EntryKind, LogEntry
from memory.recall.models import SearchIndex, SearchSegment
from memory.recall.search import announcing, index, index_maintenance
from memory.recall.search.finding import find
from memory.recall.search.results import Found
from workers import tasks

NOON = datetime.datetime(2026, 3, 2, 12, tzinfo=datetime.UTC)

Say = Callable[..., LogEntry]
SayAll = Callable[[Sequence[str]], None]
Find = Callable[..., Found]


@pytest.fixture(autouse=True)
def by_words(settings: Settings) -> None:
    """Search by words alone, so that results are predictable; see `test_meaning`."""
    settings.UAC_EMBEDDINGS = "off"


@pytest.fixture
def say(user: MemoryUser) -> Say:
    """Append a message, or another entry, of the first session by default."""

    def do(content: str | None, kind: EntryKind = EntryKind.MESSAGE, **fields: Any) -> LogEntry:
        fields = {"occurred_at": NOON, "session_id": "one", **fields}
        draft = entry_log.Draft(kind=kind, content=content, **fields)
        return entry_log.append(user, [draft], source="test")[0]

    return do


@pytest.fixture
def say_all(user: MemoryUser) -> SayAll:
    """Append messages, each in a session of its own."""

    def do(contents: Sequence[str]) -> None:
        drafts = [
            entry_log.Draft(
                kind=EntryKind.MESSAGE, content=content, session_id=f"{content[:50]} {number}"
            )
            for number, content in enumerate(contents)
        ]
        entry_log.append(user, drafts, source="test")

    return do


@pytest.fixture
def search(user: MemoryUser) -> Find:
    """Search the user's log."""

    return partial(find, user)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries however few they are."""
    for module in (index, index_maintenance):
        monkeypatch.setattr(module, "TAIL", 1)


def announce(user: MemoryUser) -> None:
    """Request indexing of the user's log, and let any worker do it."""
    announcing.want(user.pk)
    SearchIndex.objects.filter(user=user).update(lease_expires_at=None)


def leased(user: MemoryUser) -> SearchIndex:
    """Claim the user's index, as a worker does."""
    announce(user)
    claimed = leases.claim(announcing.waiting().filter(user=user))
    assert claimed is not None
    return claimed


def texts(found: Found) -> list[str]:
    return [hit.text for hit in found.hits]


def index_all(user: MemoryUser) -> list[SearchSegment]:
    """Update the index as a worker does; return its segments."""
    announce(user)
    tasks.work("indexes", user.pk)
    return segments_of(user)


def segments_of(user: MemoryUser) -> list[SearchSegment]:
    return list(SearchSegment.objects.filter(user=user).order_by("first_seq"))


def redact(entry: LogEntry) -> None:
    """Redact an entry, with the only statement that the log permits."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE memory_logentry SET redacted_at = clock_timestamp(), content = NULL, data = NULL,
                metadata = NULL, session_id = NULL, role = NULL, speaker = NULL, agent_id = NULL,
                source = NULL, idempotency_key = NULL, salt = NULL
            WHERE id = %s
            """,
            [entry.pk],
        )
