"""Events of rejected entries, and the messages about them, go with the user."""

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import AlertEvent
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.operations import verification
from memory.privacy import user_erasure
from tests.factories import reject
from tests.integration.erasure.conftest import MARKER, finish, found

pytestmark = pytest.mark.django_db


@pytest.fixture
def told(user: MemoryUser, workspace: Workspace) -> Delivery:
    """A message about the user's rejected entries, which an endpoint has quoted."""
    WebhookEndpoint.objects.create(workspace=workspace, url="https://x", secret=b"")
    reject(user, 2, key=MARKER)
    delivery = Delivery.objects.get()
    DeliveryAttempt.objects.create(
        delivery=delivery, at=timezone.now(), seconds=1, error=MARKER, answer=MARKER
    )
    return delivery


def test_requested_erasure_stops_messages(api: APIClient, user: MemoryUser, told: Delivery) -> None:
    user_erasure.ask(user, by="test", reason="asked for")

    told.refresh_from_db()
    assert (told.state, told.payload) == ("given_up", "")
    answer = api.get("/v1/events/?after=0").data
    assert (answer["rejected"], answer["next"]) == ([], 1)


def test_erasure_keeps_the_number_of_the_event_alone(user: MemoryUser, told: Delivery) -> None:
    bob = create_user(user.workspace, "bob", metadata=None)
    reject(bob)
    user_erasure.ask(user, by="test", reason="asked for")

    row = finish(user)

    assert row.due_at is None, row.last_error
    assert (row.counts["deliveries"], row.counts["delivery_attempts"]) == (1, 1)
    assert found() == []
    assert not Delivery.objects.filter(pk=told.pk).exists()
    event = AlertEvent.objects.get(user=user.pk)
    assert (event.seq, event.entries, event.actor) == (1, [], "")
    # The events of others are unchanged, and the feed has no gap.
    assert AlertEvent.objects.get(user=bob).entries == [1]
    assert Delivery.objects.get().event.user == bob  # type: ignore[union-attr]
    assert list(verification.workspace_problems(user.workspace)) == []
