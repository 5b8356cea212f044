"""The staff manage webhooks: endpoints, their secrets, and messages to send again."""

import datetime
import re
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts.delivery import webhook_endpoints
from memory.alerts.models.webhooks import (
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    WebhookEndpoint,
)
from memory.kernel.models.workspaces import Workspace
from tests.integration.admin.conftest import (
    Rows,
    act,
    add_url,
    list_url,
    messages_of,
    page_url,
    shown,
    text_of,
)
from tests.integration.webhooks.conftest import send
from tests.webhook_receiver import receiver

pytestmark = pytest.mark.django_db

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]{40,}")
URL = "http://127.0.0.1:1999/hook"


@pytest.fixture(autouse=True)
def allowed_here(settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOW_HTTP = True
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]


def form(workspace: Workspace, **fields: Any) -> dict[str, Any]:
    return {
        "workspace": workspace.pk,
        "url": URL,
        "description": "",
        "alert_kinds": ["finding"],
        "least_severity": "info",
        **fields,
    }


def test_a_new_endpoint_shows_its_secret_once(admin_client: Client, workspace: Workspace) -> None:
    with receiver() as server:
        made = admin_client.post(
            add_url(WebhookEndpoint),
            form(workspace, url=server.url, event_types=["opened"]),
            follow=True,
        )
        (secret,) = SECRET.findall(" ".join(messages_of(made)))
        endpoint = WebhookEndpoint.objects.get()
        assert endpoint.event_types == ["opened"]
        tested = act(admin_client, "send_test", endpoint)
        send(endpoint)

    assert server.received[0].verified(secret)["type"] == "ping"
    assert "A test was sent to 1 endpoint." in messages_of(tested)
    page = text_of(admin_client.get(page_url(endpoint)))
    assert not SECRET.search(page)
    assert "1 message" not in page


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://10.0.0.1/", "not a public internet address"),
        ("https://user:pass@a.example/", "user name or password"),
    ],
)
def test_a_url_that_would_not_be_called_is_refused_in_the_form(
    admin_client: Client, workspace: Workspace, url: str, words: str
) -> None:
    response = admin_client.post(add_url(WebhookEndpoint), form(workspace, url=url))

    assert words in shown(response)
    assert not WebhookEndpoint.objects.exists()


def test_without_a_key_to_encrypt_with_the_form_says_what_to_set(
    admin_client: Client, workspace: Workspace, settings: Settings
) -> None:
    settings.UAC_ENCRYPTION_KEYS = []

    response = admin_client.post(add_url(WebhookEndpoint), form(workspace))

    assert "set UAC_ENCRYPTION_KEYS" in shown(response)
    assert not WebhookEndpoint.objects.exists()


def test_changed_endpoint_keeps_its_secret(admin_client: Client, workspace: Workspace) -> None:
    endpoint, _ = webhook_endpoints.create(workspace, URL)
    before = bytes(WebhookEndpoint.objects.get().secret)

    admin_client.post(page_url(endpoint), form(workspace, description="to the phone"))

    endpoint.refresh_from_db()
    assert endpoint.description == "to the phone"
    assert bytes(endpoint.secret) == before


def test_a_rotation_shows_the_new_secret_once(admin_client: Client, workspace: Workspace) -> None:
    endpoint, old = webhook_endpoints.create(workspace, URL)

    response = act(admin_client, "rotate_secret", endpoint, confirmed="1")

    (new,) = SECRET.findall(" ".join(messages_of(response)))
    assert new != old
    endpoint.refresh_from_db()
    assert endpoint.previous_secret_until is not None


def test_endpoints_are_switched_with_their_actor(
    admin_client: Client, workspace: Workspace
) -> None:
    endpoint, _ = webhook_endpoints.create(workspace, URL)

    act(admin_client, "disable", endpoint, confirmed="1")
    endpoint.refresh_from_db()
    assert (endpoint.enabled, endpoint.disabled_reason) == (False, "Disabled by admin.")
    assert "disabled" in shown(admin_client.get(list_url(WebhookEndpoint)))

    act(admin_client, "enable", endpoint)
    endpoint.refresh_from_db()
    assert (endpoint.enabled, endpoint.disabled_at) == (True, None)


def test_settled_messages_are_sent_again(admin_client: Client, rows: Rows) -> None:
    delivery = rows[Delivery]
    assert "1 message skipped: already on the way." in messages_of(
        act(admin_client, "replay", delivery)
    )

    Delivery.objects.update(state=DeliveryState.GIVEN_UP, settled_at=timezone.now(), attempts=10)
    assert "1 message" in shown(admin_client.get(list_url(WebhookEndpoint)))
    again = act(admin_client, "replay", delivery)
    assert "1 message will be sent again." in messages_of(again)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (DeliveryState.PENDING, 0)

    Delivery.objects.update(state=DeliveryState.GIVEN_UP, settled_at=timezone.now())
    act(admin_client, "replay_given_up", rows[WebhookEndpoint])
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.PENDING


def test_message_page_shows_body_and_calls(admin_client: Client, rows: Rows) -> None:
    words = shown(admin_client.get(page_url(rows[Delivery])))

    assert '"message": "Aspirin"' in words
    assert "held: the endpoint is disabled" in words
    assert "500" in words


def test_the_page_of_a_message_names_the_one_it_waits_for(admin_client: Client, rows: Rows) -> None:
    first = rows[Delivery]
    first.state = DeliveryState.PENDING
    first.save()
    second = Delivery.objects.create(
        endpoint=first.endpoint,
        alert=first.alert,
        seq=(first.seq or 0) + 1,
        type="alert.resolved",
        payload="{}",
    )

    assert f"Waits for: {first}" in shown(admin_client.get(page_url(second)))
    assert "Waits for: –" in shown(admin_client.get(page_url(first)))


def test_the_page_of_a_message_says_for_how_long_its_endpoint_has_failed(
    admin_client: Client, rows: Rows
) -> None:
    delivery = rows[Delivery]
    began_at = timezone.now() - datetime.timedelta(minutes=24, seconds=9)
    WebhookEndpoint.objects.update(enabled=True, failing_since=began_at)
    waits = "Waits for: its endpoint : calls to it have failed for 24 min"

    page = admin_client.get(page_url(delivery))
    assert waits in shown(page)
    assert f'href="{page_url(delivery.endpoint)}"><bdi>its endpoint' in text_of(page)

    Delivery.objects.update(state=DeliveryState.DELIVERED, settled_at=timezone.now())
    assert waits not in shown(admin_client.get(page_url(delivery)))


def test_viewer_cannot_change_endpoints(staff: Any, rows: Rows) -> None:
    client = staff("view_webhookendpoint", "view_delivery")
    endpoint, delivery = rows[WebhookEndpoint], rows[Delivery]
    Delivery.objects.update(state=DeliveryState.GIVEN_UP, settled_at=timezone.now())

    for action in ("enable", "rotate_secret", "replay_given_up"):
        act(client, action, endpoint)
    act(client, "replay", delivery)

    endpoint.refresh_from_db()
    delivery.refresh_from_db()
    assert (endpoint.enabled, endpoint.previous_secret) == (False, None)
    assert delivery.state == DeliveryState.GIVEN_UP


def test_a_failing_endpoint_says_why(admin_client: Client, rows: Rows) -> None:
    delivery = rows[Delivery]
    failed = DeliveryAttempt.objects.create(
        delivery=delivery, at=timezone.now(), seconds=0.1, error="connection refused"
    )
    endpoint = delivery.endpoint
    assert "connection refused" not in shown(admin_client.get(page_url(endpoint)))
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(failing_since=timezone.now())

    page = admin_client.get(page_url(endpoint))

    assert "connection refused" in shown(page)
    assert page_url(failed) in text_of(page)
