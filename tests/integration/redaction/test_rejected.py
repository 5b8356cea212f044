"""Messages about rejected entries no longer contain redacted text."""

import datetime
import json
from collections.abc import Callable

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.delivery import outbox
from memory.alerts.models.alerts import AlertEvent
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome
from memory.operations import verification
from memory.privacy import redaction
from tests.factories import reject
from tests.integration.redaction.conftest import MARKER, found

pytestmark = pytest.mark.django_db

Work = Callable[[], None]


@pytest.fixture(autouse=True)
def endpoint(workspace: Workspace) -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(
        workspace=workspace, url="https://example.org/", secret=b"sealed"
    )


def redact(user: MemoryUser, seq: int) -> None:
    redaction.redact(user, [seq], by="staff:eve", reason="she asked for it")


def settle(delivery: Delivery) -> Delivery:
    """Deliver a message to an endpoint that quotes it, after it failed once."""
    Delivery.objects.filter(pk=delivery.pk).update(
        state="delivered", settled_at=timezone.now(), last_error=MARKER
    )
    DeliveryAttempt.objects.create(
        delivery=delivery, at=timezone.now(), seconds=1, error=MARKER, answer=MARKER
    )
    return delivery


def entries_in(delivery: Delivery) -> list[int]:
    delivery.refresh_from_db()
    rejected = json.loads(delivery.payload)["data"]["rejected"]
    return [entry["seq"] for entry in rejected["entries"]]


def test_waiting_message_loses_the_entry(api: APIClient, user: MemoryUser, work: Work) -> None:
    first, second = reject(user, 2, key=MARKER)
    delivery = Delivery.objects.get()
    sending = delivery.token
    assert entries_in(delivery) == [first, second]

    redact(user, first)
    work()

    assert entries_in(delivery) == [second]
    # A worker that is sending it at the moment sends it again.
    assert (delivery.state, delivery.token) == ("pending", sending + 1)
    (rejected,) = api.get("/v1/events/?after=0").data["rejected"]
    assert [entry["seq"] for entry in rejected["entries"]] == [second]
    assert (rejected["count"], rejected["more"]) == (2, 1)


def test_settled_message_is_emptied_with_its_answers(user: MemoryUser, work: Work) -> None:
    (seq,) = reject(user, key=MARKER)
    delivery = settle(Delivery.objects.get())
    assert {"Delivery.payload", "Delivery.last_error", "EntryOutcome.reason"} <= {
        place.partition(":")[0] for place in found()
    }

    redact(user, seq)
    work()

    assert found() == []
    delivery.refresh_from_db()
    assert (delivery.payload, delivery.state) == ("", "delivered")
    with pytest.raises(outbox.DeliveryPending, match="redacted"):
        outbox.replay(delivery)
    # The event stays, by its number.
    event = AlertEvent.objects.get(user=user)
    assert (event.seq, event.entries) == (1, [seq])
    assert list(verification.problems(user)) == []
    assert list(verification.workspace_problems(user.workspace)) == []


def test_a_message_that_was_sent_before_the_entry_came_stays(user: MemoryUser, work: Work) -> None:
    reject(user, key="harmless")
    earlier = settle(Delivery.objects.get())
    (seq,) = reject(user, key=MARKER)

    redact(user, seq)
    work()

    assert entries_in(earlier) == [1]


def test_message_that_may_quote_the_entry_is_emptied(user: MemoryUser, work: Work) -> None:
    # Given a later rejection for a reason in a model's words.
    (said,) = entry_log.append(user, [Draft(kind=EntryKind.MESSAGE, content=MARKER)], source="test")
    (seq,) = reject(user)
    EntryOutcome.objects.filter(user=user, seq=seq).update(reason="not like the other")
    Delivery.objects.update(payload=f"it contradicts {MARKER}")
    settle(Delivery.objects.get())

    redact(user, said.seq)
    work()

    assert found() == []


def test_messages_of_other_users_stay(user: MemoryUser, workspace: Workspace, work: Work) -> None:
    bob = create_user(workspace, "bob", metadata=None)
    (seq,) = reject(user, key=MARKER)
    reject(bob)
    AlertEvent.objects.filter(user=bob).update(at=timezone.now() + datetime.timedelta(days=1))
    of_bob = settle(Delivery.objects.get(event__user=bob))

    redact(user, seq)
    work()

    assert entries_in(of_bob) == [1]
