"""Messages about rejected entries: recipients and content."""

import json
from typing import Any

import pytest

from memory.alerts.delivery import outbox, webhook_endpoints
from memory.alerts.models.alerts import AlertEvent, AlertKind, Severity
from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.log import fixes
from memory.log.models.entries import EntryOutcome
from tests.conftest import new_client
from tests.factories import reject
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.webhooks.conftest import NOWHERE, EndpointAt, due_now, send, told
from tests.webhook_receiver import answers, receiver

pytestmark = pytest.mark.django_db


def test_message_names_rejected_entries_and_fix(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, secret = endpoint_at(server.url)
        entries = reject(user, 22)
        send(endpoint)

    (call,) = server.received
    message = call.verified(secret)
    event = AlertEvent.objects.get(user=user)
    reasons = dict(EntryOutcome.objects.filter(user=user).values_list("seq", "reason"))
    assert message["type"] == "entry.rejected"
    assert message["data"] == {
        "user_id": "ada",
        "event": {
            "seq": 1,
            "kind": "rejected",
            "at": event.at.isoformat().replace("+00:00", "Z"),
            "actor": "records",
        },
        "rejected": {
            "count": 22,
            "more": 2,
            "entries": [
                {"seq": seq, "reason": reasons[seq], "fix": fixes.FIX} for seq in entries[:20]
            ],
        },
    }
    assert told(endpoint) == [("entry.rejected", "delivered")]


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({}, True),
        ({"event_types": ["rejected"]}, True),
        ({"event_types": ["opened", "rejected"]}, True),
        ({"event_types": ["opened"]}, False),
        # The filter for alerts does not apply to entries.
        ({"least_severity": Severity.CRITICAL}, True),
        ({"alert_kinds": [AlertKind.CONSTRAINT_ERROR]}, True),
    ],
)
def test_an_endpoint_is_told_of_rejected_entries_unless_it_asks_for_other_events(
    user: MemoryUser, endpoint_at: EndpointAt, fields: dict[str, Any], is_told: bool
) -> None:
    endpoint, _ = endpoint_at(NOWHERE, **fields)

    reject(user)

    assert told(endpoint) == ([("entry.rejected", "pending")] if is_told else [])


def test_rejection_endpoint_is_sent_no_alert(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    endpoint, _ = endpoint_at(NOWHERE, event_types=["rejected"])

    run_finds(user, finding(record("m-1")))

    assert told(endpoint) == []


def test_endpoints_of_other_workspaces_are_told_nothing(user: MemoryUser) -> None:
    other = Workspace.objects.create(name="other")
    endpoint, _ = webhook_endpoints.create(other, NOWHERE)

    reject(user)

    assert told(endpoint) == []


def test_rejection_message_waits_for_no_other(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    # Given two messages, of which the first is not taken
    bob = create_user(user.workspace, "bob", metadata=None)
    with receiver(answers(500), answers(200)) as server:
        endpoint, _ = endpoint_at(server.url)
        reject(user)
        reject(bob)
        _, second = Delivery.objects.filter(endpoint=endpoint).order_by("seq")
        assert outbox.before(second) is None
        due_now(endpoint)
        send(endpoint)
        WebhookEndpoint.objects.filter(pk=endpoint.pk).update(not_before=None)
        send(endpoint)

    # Then the second one is
    assert told(endpoint) == [("entry.rejected", "pending"), ("entry.rejected", "delivered")]


def test_the_api_offers_the_event_and_tells_its_messages(user: MemoryUser) -> None:
    managing = new_client(user.workspace, Scope.MANAGE)
    made = managing.post(
        "/v1/webhooks/", {"url": NOWHERE, "event_types": ["entry.rejected", "alert.opened"]}
    )
    assert made.status_code == 201, made.data
    assert made.data["event_types"] == ["entry.rejected", "alert.opened"]
    assert WebhookEndpoint.objects.get().event_types == ["rejected", "opened"]
    reject(user)

    address = f"/v1/webhooks/{made.data['id']}/deliveries/"
    (listed,) = managing.get(f"{address}?type=entry.rejected").data["results"]
    assert (listed["type"], listed["alert"], listed["seq"]) == ("entry.rejected", None, 1)
    whole = managing.get(f"{address}{listed['id']}/").data
    assert json.loads(whole["payload"])["data"]["rejected"]["count"] == 1
    assert managing.get(f"{address}?type=alert.opened").data["results"] == []
