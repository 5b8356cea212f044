"""`/v1/webhooks/`: endpoints, their messages, and permissions."""

import datetime
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from tests.conftest import new_client
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.webhooks.conftest import send, send_when_due
from tests.webhook_receiver import answers, receiver

pytestmark = pytest.mark.django_db

URL = "http://127.0.0.1:1999/hook"


@pytest.fixture
def manager(workspace: Workspace) -> APIClient:
    return new_client(workspace, Scope.MANAGE)


def create(manager: APIClient, **fields: Any) -> dict[str, Any]:
    response = manager.post("/v1/webhooks/", {"url": URL, **fields})
    assert response.status_code == 201, response.data
    made: dict[str, Any] = response.data
    return made


def path_of(endpoint: dict[str, Any], rest: str = "") -> str:
    return f"/v1/webhooks/{endpoint['id']}/{rest}"


def test_an_endpoint_is_created_and_its_secret_told_once(manager: APIClient) -> None:
    made = create(
        manager,
        description="to the phone",
        event_types=["alert.opened", "alert.resolved", "alert.opened"],
        alert_kinds=["finding", "constraint_error"],
        least_severity="warning",
    )

    assert made["secret"].startswith("whsec_")
    assert made["event_types"] == ["alert.opened", "alert.resolved"]
    assert (made["enabled"], made["pending"], made["given_up"]) == (True, 0, 0)
    (listed,) = manager.get("/v1/webhooks/").data["results"]
    assert listed == {name: value for name, value in made.items() if name != "secret"}
    assert manager.get(path_of(made)).data == listed
    assert WebhookEndpoint.objects.get().event_types == ["opened", "resolved"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "url", "required"),
        ({"url": 5}, "url", "Send a string"),
        ({"url": "https://user:pass@a.example/"}, "url", "user name or password"),
        ({"url": "http://10.0.0.1/"}, "url", "not a public internet address"),
        ({"url": "http://[::ffff:169.254.169.254]/"}, "url", "not a public internet address"),
        ({"url": "https://a.example:25/"}, "url", "port 443"),
        ({"url": URL, "event_types": ["exploded"]}, "event_types", "Choose one of alert.opened, "),
        ({"url": URL, "event_types": "alert.opened"}, "event_types", "Send a list"),
        ({"url": URL, "least_severity": "bad"}, "least_severity", "info, warning, critical"),
        ({"url": URL, "secret": "whsec_AAAA"}, "secret", "Unknown field"),
        ({"url": URL, "enabled": False}, "enabled", "Unknown field"),
    ],
)
def test_invalid_endpoint_is_refused_by_field(
    manager: APIClient, body: dict[str, Any], field: str, words: str
) -> None:
    response = manager.post("/v1/webhooks/", body)

    assert response.status_code == 400
    assert words in str(response.data["errors"][field])
    assert not WebhookEndpoint.objects.exists()


def test_missing_encryption_key_is_a_conflict(manager: APIClient, settings: Settings) -> None:
    settings.UAC_ENCRYPTION_KEYS = []

    response = manager.post("/v1/webhooks/", {"url": URL})

    assert response.status_code == 409
    assert "set UAC_ENCRYPTION_KEYS" in response.data["detail"]


def test_endpoints_of_another_workspace_are_not_there(user: MemoryUser, manager: APIClient) -> None:
    made = create(manager)
    run_finds(user, finding(record("m-1")))
    delivery = Delivery.objects.get()
    stranger = new_client(Workspace.objects.create(name="other"), Scope.MANAGE)

    one = f"deliveries/{delivery.pk}/"
    assert stranger.get("/v1/webhooks/").data["results"] == []
    for path in ("", "deliveries/", one):
        assert stranger.get(path_of(made, path)).status_code == 404
    for path in ("rotate-secret/", "test/", f"{one}replay/"):
        assert stranger.post(path_of(made, path), {}).status_code == 404
    assert stranger.post(path_of(made, "replay/"), {"since": "2026-01-01"}).status_code in (
        400,
        404,
    )
    assert stranger.patch(path_of(made), {"enabled": False}).status_code == 404
    assert stranger.delete(path_of(made)).status_code == 404
    other = create(stranger)
    assert stranger.get(path_of(other, one)).status_code == 404
    assert WebhookEndpoint.objects.filter(enabled=True).count() == 2


def test_an_endpoint_is_changed_disabled_and_enabled(user: MemoryUser, manager: APIClient) -> None:
    made = create(manager)
    run_finds(user, finding(record("m-1")))

    changed = manager.patch(path_of(made), {"description": "new", "enabled": False}).data
    assert (changed["description"], changed["enabled"]) == ("new", False)
    assert changed["disabled_reason"] == "Disabled manually."
    (held,) = manager.get(path_of(made, "deliveries/")).data["results"]
    assert (held["state"], held["next_attempt_at"]) == ("held", None)
    assert manager.get(path_of(made, "deliveries/?state=held")).data["results"] == [held]
    assert manager.get(path_of(made, "deliveries/?state=pending")).data["results"] == []

    with receiver() as server:
        enabled = manager.patch(path_of(made), {"url": server.url, "enabled": True}).data
        assert (enabled["enabled"], enabled["disabled_at"], enabled["pending"]) == (True, None, 1)
        send(WebhookEndpoint.objects.get())
    assert len(server.received) == 1
    assert manager.patch(path_of(made), {"url": "http://10.0.0.1/"}).status_code == 400

    assert manager.delete(path_of(made)).status_code == 204
    assert manager.get("/v1/webhooks/").data["results"] == []


def test_the_delivery_log_tells_every_call(user: MemoryUser, manager: APIClient) -> None:
    with receiver(answers(500, b"<script>oops"), answers(200, b"ok")) as server:
        made = create(manager, url=server.url)
        run_finds(user, finding(record("m-1")))
        endpoint = WebhookEndpoint.objects.get()
        send(endpoint)
        (waits,) = manager.get(path_of(made, "deliveries/?state=pending")).data["results"]
        assert waits["last_error"] == "The endpoint returned 500."
        assert waits["next_attempt_at"] > waits["created_at"]
        send_when_due(endpoint)

    one = manager.get(path_of(made, f"deliveries/{waits['id']}/")).data
    assert [(call["status"], call["answer"]) for call in one["calls"]] == [
        (500, "<script>oops"),
        (200, "ok"),
    ]
    assert one["payload"].encode() == server.received[0].body
    assert one["message_id"] == server.received[0].id
    assert (one["state"], one["attempts"], one["seq"]) == ("delivered", 2, 1)
    for query, found in (
        ("type=alert.opened", 1),
        ("type=ping", 0),
        (f"alert={one['alert']}", 1),
        ("since=2999-01-01T00:00:00Z", 0),
    ):
        listed = manager.get(path_of(made, f"deliveries/?{query}")).data["results"]
        assert len(listed) == found, query
    for wrong in (
        "stat=x",
        "state=x",
        "type=x",
        "alert=x",
        "since=x",
        "since=9999-12-31T23:59:59-23:59",
    ):
        response = manager.get(path_of(made, f"deliveries/?{wrong}"))
        assert response.status_code == 400
        assert wrong.partition("=")[0] in response.data["errors"]


def test_a_message_is_replayed(user: MemoryUser, manager: APIClient) -> None:
    with receiver() as server:
        made = create(manager, url=server.url)
        run_finds(user, finding(record("m-1")))
        delivery = Delivery.objects.get()
        again = path_of(made, f"deliveries/{delivery.pk}/replay/")
        assert manager.post(again, {}).status_code == 409
        send(delivery.endpoint)

        response = manager.post(again, {})
        assert (response.status_code, response.data["state"]) == (202, "pending")
        send(delivery.endpoint)

    assert len(server.received) == 2


def test_abandoned_messages_are_replayed_by_time(user: MemoryUser, manager: APIClient) -> None:
    made = create(manager)
    run_finds(user, finding(record("m-1")))
    Delivery.objects.update(state="given_up", settled_at=timezone.now())
    assert manager.get(path_of(made)).data["given_up"] == 1

    for since, replayed in (("2999-01-01T00:00:00Z", 0), ("2000-01-01T00:00:00Z", 1)):
        response = manager.post(path_of(made, "replay/"), {"since": since})
        assert (response.status_code, response.data) == (202, {"replayed": replayed})

    assert manager.post(path_of(made, "replay/"), {}).status_code == 400
    assert manager.get(path_of(made)).data["pending"] == 1


def test_a_moment_without_an_offset_is_one_where_the_workspace_is(
    user: MemoryUser, manager: APIClient, workspace: Workspace
) -> None:
    workspace.time_zone = "Asia/Tokyo"
    workspace.save()
    made = create(manager)
    run_finds(user, finding(record("m-1")))
    noon = datetime.datetime(2026, 3, 2, 12, tzinfo=datetime.UTC)  # 21:00 in Tokyo
    Delivery.objects.update(state="given_up", created_at=noon, settled_at=noon)

    for since, found in (("2026-03-02T21:00:00", 1), ("2026-03-02T21:00:01", 0)):
        listed = manager.get(path_of(made, f"deliveries/?since={since}")).data["results"]
        assert len(listed) == found
        replayed = manager.post(path_of(made, "replay/"), {"since": since})
        assert replayed.data == {"replayed": found}


def test_a_day_to_replay_from_begins_where_the_workspace_is(
    user: MemoryUser, manager: APIClient, workspace: Workspace
) -> None:
    workspace.time_zone = "Europe/Berlin"
    workspace.save()
    made = create(manager)
    run_finds(user, finding(record("m-1")))

    for moment, found in (("2026-03-30T23:59:59.9+02:00", 0), ("2026-03-31T00:00:00+02:00", 1)):
        Delivery.objects.update(state="given_up", created_at=moment, settled_at=moment)
        listed = manager.get(path_of(made, "deliveries/?since=2026-03-31")).data["results"]
        assert len(listed) == found, moment
        replayed = manager.post(path_of(made, "replay/"), {"since": "2026-03-31"})
        assert replayed.data == {"replayed": found}, moment


def test_a_test_message_arrives(manager: APIClient) -> None:
    with receiver() as server:
        made = create(manager, url=server.url)
        response = manager.post(path_of(made, "test/"), {})
        assert (response.status_code, response.data["type"]) == (202, "ping")
        send(WebhookEndpoint.objects.get())

    assert server.received[0].verified(made["secret"])["data"] == {"endpoint_id": str(made["id"])}
    manager.patch(path_of(made), {"enabled": False})
    assert manager.post(path_of(made, "test/"), {}).status_code == 409


def test_a_rotated_secret_is_told_once(user: MemoryUser, manager: APIClient) -> None:
    with receiver() as server:
        made = create(manager, url=server.url)
        rotated = manager.post(path_of(made, "rotate-secret/"), {}).data
        run_finds(user, finding(record("m-1")))
        send(WebhookEndpoint.objects.get())

    assert rotated["secret"] != made["secret"]
    assert rotated["previous_secret_until"] is not None
    (call,) = server.received
    assert call.verified(rotated["secret"]) == call.verified(made["secret"])
    assert "secret" not in manager.get(path_of(made)).data
