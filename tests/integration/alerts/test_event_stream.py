"""Rejected entries in a stream of events; `tests/acceptance/mcp` tests the process."""

import json

import pytest

from memory.alerts.models.webhooks import WebhookEndpoint
from memory.integrations.mcp import events
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import create_user
from tests.factories import reject

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def in_the_transaction_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "close_old_connections", lambda: None)


def read(user: MemoryUser, *, alone: bool = False, after: int = 0) -> list[dict[str, str]]:
    """Return the fields of the next events of the workspace, or of the user alone."""
    page = events._read((user.workspace_id, user.pk if alone else None, after))
    return [dict(line.split(": ", 1) for line in text.strip().split("\n")) for text in page.texts]


def test_rejected_entries_are_told_as_webhooks_tell_them(user: MemoryUser) -> None:
    endpoint = WebhookEndpoint.objects.create(workspace=user.workspace, url="https://x", secret=b"")
    reject(user)

    (event,) = read(user)

    assert (event["id"], event["event"]) == ("1", "entry.rejected")
    assert event["data"] == endpoint.deliveries.get().payload
    assert json.loads(event["data"])["data"]["rejected"]["count"] == 1


def test_the_stream_of_a_user_tells_of_the_users_entries_alone(user: MemoryUser) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    reject(user)
    reject(bob)

    assert [event["id"] for event in read(user)] == ["1", "2"]
    assert [event["id"] for event in read(bob, alone=True)] == ["2"]
