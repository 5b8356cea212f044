"""Bad input must get a clear answer and write nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest
from django.db.models import Model
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert, AlertEvent
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import Lane, MemoryUser
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run
from tests.rows import read_rows

WRITTEN: tuple[type[Model], ...] = (
    MemoryUser,
    LogEntry,
    EntryOutcome,
    Lane,
    Checkpoint,
    Run,
    Alert,
    AlertEvent,
    IdempotencyKey,
)


def stored() -> dict[str, list[str]]:
    """Return everything that a request could write."""
    return read_rows(WRITTEN)


@contextmanager
def nothing_written() -> Iterator[None]:
    """Check that the block leaves every table unchanged."""
    before = stored()
    yield
    assert stored() == before


class Refused(Protocol):
    """Check that an answer is a problem of this status with these words."""

    def __call__(self, response: Any, status: int, *words: str) -> None: ...


def check_problem(response: Any, status: int, *words: str) -> None:
    """Check that an answer is problem details with each of the words."""
    assert response.status_code == status, response.content[:1000]
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    told = f"{problem['detail']} {problem.get('errors', '')}"
    for word in words:
        assert word in told
    # An answer must not grow with the request.
    assert len(response.content) < 5000


@pytest.fixture
def refused(api: APIClient, user: MemoryUser) -> Iterator[Refused]:
    """Check answers; afterwards nothing must be written, and a good request must succeed."""
    # An exception in the server becomes an answer, which must not be a 500.
    api.raise_request_exception = False
    with nothing_written():
        yield check_problem
    good = api.post("/v1/users/ada/entries/", {"kind": "message", "content": "good"})
    assert (good.status_code, good.data["entries"][0]["seq"]) == (202, 1)
