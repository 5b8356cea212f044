"""Messages: written with their event, sent until they are accepted, in order per alert."""

import datetime
import json
import uuid

import pytest
import time_machine
from cryptography.fernet import Fernet
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from memory.alerts import alert_actions
from memory.alerts.delivery import delivery_attempts, outbox, webhook_endpoints
from memory.alerts.findings import failure
from memory.alerts.models.alerts import Alert, AlertKind, Severity
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, DeliveryState, WebhookEndpoint
from memory.kernel import encryption
from memory.kernel.models.users import MemoryUser
from memory.kernel.outgoing.destinations import AddressRefused
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.project.errors import RunError
from tests.integration.alerts.test_life import ALLERGY, finding, record, run_finds
from tests.integration.webhooks.conftest import (
    NOWHERE,
    EndpointAt,
    send,
    send_when_due,
    told,
)
from tests.rows import explain
from tests.webhook_receiver import Received, answers, hangs, receiver
from workers.service import dispatching

pytestmark = pytest.mark.django_db

# Messages that are to wait do so until `due_now`, however long a test takes.
LATER = [3600.0] * 9


def kinds(calls: list[Received]) -> list[str]:
    return [json.loads(call.body)["type"] for call in calls]


def resolve(user: MemoryUser, key: str) -> None:
    alert = Alert.objects.exclude(state="resolved").get(user=user, evidence__0__key=key)
    alert_actions.resolve(alert, actor="key:x", reason="done")


def the_delivery(endpoint: WebhookEndpoint) -> Delivery:
    return Delivery.objects.select_related("endpoint").get(endpoint=endpoint)


def failed_attempt(delivery: Delivery) -> DeliveryAttempt:
    error = "The endpoint returned 500."
    return DeliveryAttempt(delivery=delivery, at=timezone.now(), seconds=1, status=500, error=error)


# -- What is written ---------------------------------------------------------------------------


def test_message_is_signed_and_has_evidence(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, secret = endpoint_at(server.url)
        run_finds(user, finding(record("m-1", 41, 7), message="Ünïcode <script>"))
        send(endpoint)

    (call,) = server.received
    message = call.verified(secret)
    alert = Alert.objects.get(user=user)
    assert message["type"] == "alert.opened"
    assert message["data"]["user_id"] == "ada"
    assert message["data"]["event"]["seq"] == 1
    told_alert = message["data"]["alert"]
    assert told_alert["id"] == str(alert.pk)
    assert told_alert["message"] == "Ünïcode <script>"
    assert told_alert["evidence"] == [record("m-1", 41, 7)]
    assert told_alert["entries"] == [7, 41]
    assert told_alert["complete"] is True
    assert call.headers["content-type"] == "application/json"
    assert call.id.startswith("msg_")
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "A" * 43).verify(call.body, dict(call.headers))

    (attempt,) = DeliveryAttempt.objects.all()
    assert (attempt.status, attempt.error, attempt.address) == (200, "", "127.0.0.1")
    assert told(endpoint) == [("alert.opened", "delivered")]


def test_message_is_written_with_its_event(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    endpoint, _ = endpoint_at(NOWHERE)

    with transaction.atomic():
        run_finds(user, finding(record("m-1")))
        assert len(told(endpoint)) == 1
        transaction.set_rollback(True)

    assert told(endpoint) == []


def test_endpoint_is_sent_what_it_asks_for(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    every, _ = endpoint_at(NOWHERE)
    grave, _ = endpoint_at(NOWHERE, least_severity=Severity.CRITICAL)
    ends, _ = endpoint_at(NOWHERE, event_types=["resolved"])
    keepers, _ = endpoint_at(NOWHERE, alert_kinds=[AlertKind.CONSTRAINT_ERROR])
    off, _ = endpoint_at(NOWHERE)
    webhook_endpoints.disable(off, "tests")

    run_finds(
        user,
        finding(record("m-1"), severity=Severity.WARNING),
        failure(ALLERGY, RunError(type="E", message="m", line=1)),
    )
    run_finds(user, failure(ALLERGY, RunError(type="E", message="m", line=1)))

    assert [kind for kind, _ in told(every)] == ["alert.opened", "alert.resolved"]
    assert told(grave) == []
    assert [kind for kind, _ in told(ends)] == ["alert.resolved"]
    assert [kind for kind, _ in told(keepers)] == ["alert.opened"]
    assert told(off) == []


def test_alert_once_severe_is_sent_to_its_end(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    # Given an endpoint for what is critical, and an alert that is not so any more
    endpoint, _ = endpoint_at(NOWHERE, least_severity=Severity.CRITICAL)
    slight = finding(record("m-1"), severity=Severity.INFO)
    never = finding(record("m-2"), severity=Severity.INFO)
    run_finds(user, finding(record("m-1")), never)

    run_finds(user, slight, never)
    run_finds(user)

    # Then the endpoint does not take it for open for ever, and is told of no other
    assert [kind for kind, _ in told(endpoint)] == [
        *("alert.opened", "alert.changed", "alert.resolved")
    ]


def test_other_workspaces_are_sent_nothing(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    from memory.kernel.models.workspaces import Workspace

    other, _ = webhook_endpoints.create(Workspace.objects.create(name="other"), NOWHERE)

    run_finds(user, finding(record("m-1")))

    assert told(other) == []


def test_evidence_of_a_message_is_bounded(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    endpoint, _ = endpoint_at(NOWHERE)

    run_finds(user, finding(*(record(f"m-{number}", number) for number in range(500))))

    alert = json.loads(the_delivery(endpoint).payload)["data"]["alert"]
    assert len(alert["evidence"]) == 100
    assert alert["complete"] is False


# -- Until it is taken -------------------------------------------------------------------------


def test_failed_message_is_resent_with_the_same_id_and_body(
    user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    settings.UAC_WEBHOOK_RETRY_SECONDS = LATER
    with receiver(answers(500, b"oops"), hangs, answers(200)) as server:
        endpoint, secret = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        send(endpoint)
        send(endpoint)  # it waits
        assert len(server.received) == 1
        settings.UAC_WEBHOOK_TIMEOUT_SECONDS = 2.0
        send_when_due(endpoint)
        settings.UAC_WEBHOOK_TIMEOUT_SECONDS = 60.0
        send_when_due(endpoint)

    assert len({(call.id, call.body) for call in server.received}) == 1
    assert [call.verified(secret)["type"] for call in server.received] == ["alert.opened"] * 3
    calls = DeliveryAttempt.objects.order_by("at")
    assert [*calls.values_list("status", "answer")] == [(500, "oops"), (None, ""), (200, "")]
    assert [bool(call.error) for call in calls] == [True, True, False]
    assert told(endpoint) == [("alert.opened", "delivered")]
    endpoint.refresh_from_db()
    assert (endpoint.failures, endpoint.failing_since) == (0, None)


def test_retries_last_three_days(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    waits: list[float] = []
    with receiver(answers(500)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        while told(endpoint) == [("alert.opened", "pending")]:
            send_when_due(endpoint)
            waits.append((the_delivery(endpoint).run_after - timezone.now()).total_seconds())

    expected = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert len(server.received) == len(expected) + 1
    for wait, about in zip(waits, expected, strict=False):
        assert 0.9 * about - 5 < wait < 1.1 * about + 1
    assert 2.9 < sum(expected) / 86400 < 3.3
    assert told(endpoint) == [("alert.opened", "given_up")]
    assert "500" in the_delivery(endpoint).last_error


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("120", 115, 121),
        ("999999999999", 86300, 86500),
        ("-5", 0, 6),
        ("soon", 0, 6),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 6),
        ("Wed, 21 Oct 2015 07:28:00", 0, 6),
    ],
)
def test_retry_after_is_honoured_within_reason(
    user: MemoryUser, endpoint_at: EndpointAt, asked: str, least: float, most: float
) -> None:
    with receiver(answers(503, retry_after=asked)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        send(endpoint)

    wait = (the_delivery(endpoint).run_after - timezone.now()).total_seconds()
    assert least <= wait <= most


def test_message_of_killed_worker_is_resent(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        dead = delivery_attempts.claim(str(endpoint.pk))
        assert dead is not None
        send(endpoint)  # it is somebody's still
        assert server.received == []

        Delivery.objects.filter(pk=dead.pk).update(lease_expires_at=timezone.now())
        send(endpoint)

    assert len(server.received) == 1
    assert told(endpoint) == [("alert.opened", "delivered")]
    # And if it was only slow, it does not write over its successor.
    with pytest.raises(leases.LeaseLost):
        delivery_attempts.record(failed_attempt(dead))
    assert told(endpoint) == [("alert.opened", "delivered")]
    assert DeliveryAttempt.objects.count() == 1


# -- In order ----------------------------------------------------------------------------------


def test_a_later_event_of_the_alert_waits_and_another_alert_does_not(
    user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    settings.UAC_WEBHOOK_RETRY_SECONDS = LATER
    with receiver(answers(500), answers(200)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        send(endpoint)
        resolve(user, "m-1")
        run_finds(user, finding(record("m-2")))
        send(endpoint)
        assert told(endpoint) == [
            ("alert.opened", "pending"),
            ("alert.resolved", "pending"),
            ("alert.opened", "delivered"),
        ]
        send_when_due(endpoint)

    assert kinds(server.received) == [
        "alert.opened",
        "alert.opened",
        "alert.opened",
        "alert.resolved",
    ]
    assert {state for _, state in told(endpoint)} == {"delivered"}


def test_message_given_up_holds_up_nothing(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver(answers(500), answers(200)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        resolve(user, "m-1")
        Delivery.objects.filter(seq=1).update(attempts=9)
        send(endpoint)

    assert told(endpoint) == [("alert.opened", "given_up"), ("alert.resolved", "delivered")]


def test_endpoint_waits_for_its_own_messages(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        broken, _ = endpoint_at(NOWHERE)
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        send(broken)
        resolve(user, "m-1")
        send(broken)
        send(endpoint)

    assert [state for _, state in told(broken)] == ["pending", "pending"]
    assert [state for _, state in told(endpoint)] == ["delivered", "delivered"]


# -- Endpoints that fail -----------------------------------------------------------------------


def test_410_disables_endpoint_until_enabled(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver(answers(410), answers(200)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        resolve(user, "m-1")
        send(endpoint)
        endpoint.refresh_from_db()
        assert endpoint.enabled is False
        assert "410" in endpoint.disabled_reason
        assert {delivery.standing for delivery in endpoint.deliveries.all()} == {"held"}
        assert dispatching.hint_work(KINDS["deliveries"]) == 0
        send_when_due(endpoint)
        assert len(server.received) == 1

        # Given that what waits would be tried again much later only
        endpoint.deliveries.update(run_after=timezone.now() + datetime.timedelta(hours=14))
        webhook_endpoints.enable(endpoint)
        send(endpoint)

    assert WebhookEndpoint.objects.get().enabled
    assert kinds(server.received)[1:] == ["alert.opened", "alert.resolved"]


def test_endpoint_failing_for_days_is_disabled(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    endpoint, _ = endpoint_at(NOWHERE)
    run_finds(user, finding(record("m-1")))
    send(endpoint)
    for days, enabled in ((4.9, True), (5.1, False)):
        long_ago = timezone.now() - datetime.timedelta(days=days)
        WebhookEndpoint.objects.update(failing_since=long_ago)
        send_when_due(endpoint)
        endpoint.refresh_from_db()
        assert endpoint.enabled is enabled

    assert "All calls have failed since" in endpoint.disabled_reason
    assert endpoint.disabled_at is not None


def test_success_clears_failures(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        long_ago = timezone.now() - datetime.timedelta(days=30)
        WebhookEndpoint.objects.update(failing_since=long_ago, failures=7)
        run_finds(user, finding(record("m-1")))
        send(endpoint)

    endpoint.refresh_from_db()
    assert (endpoint.failing_since, endpoint.failures, endpoint.enabled) == (None, 0, True)


def test_concurrent_messages_are_limited_and_one_to_a_failing_endpoint(
    user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    settings.UAC_WEBHOOK_CONCURRENCY = 2
    endpoint, _ = endpoint_at(NOWHERE)
    run_finds(user, *(finding(record(f"m-{number}")) for number in range(5)))

    claimed = [delivery_attempts.claim(str(endpoint.pk)) for _ in range(3)]
    assert [delivery is not None for delivery in claimed] == [True, True, False]

    assert claimed[0] is not None
    delivery_attempts.record(failed_attempt(claimed[0]))
    WebhookEndpoint.objects.update(not_before=None)
    assert delivery_attempts.claim(str(endpoint.pk)) is None


def test_messages_per_minute_are_limited(
    user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    settings.UAC_WEBHOOK_PER_MINUTE = 3
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, *(finding(record(f"m-{number}")) for number in range(5)))
        send(endpoint)
        assert len(server.received) == 3

        a_minute_ago = timezone.now() - datetime.timedelta(minutes=1)
        WebhookEndpoint.objects.update(minute_began_at=a_minute_ago)
        send(endpoint)

    assert len(server.received) == 5


def test_failing_endpoint_is_left_alone(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver(answers(500)) as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, *(finding(record(f"m-{number}")) for number in range(9)))
        # It is not retried for a second, which must not pass meanwhile.
        with time_machine.travel(timezone.now(), tick=False):
            send(endpoint)
            endpoint.refresh_from_db()
            assert endpoint.not_before is not None
            assert 0 < (endpoint.not_before - timezone.now()).total_seconds() <= 60

    # Three of nine messages were tried: the endpoint is failing.
    assert len(server.received) == 3


# -- Secrets -----------------------------------------------------------------------------------


def test_rotated_secrets_both_verify_for_a_day(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, old = endpoint_at(server.url)
        new = webhook_endpoints.rotate_secret(endpoint)
        run_finds(user, finding(record("m-1")))
        send(endpoint)
        WebhookEndpoint.objects.update(previous_secret_until=timezone.now())
        resolve(user, "m-1")
        send(endpoint)

    during, after = server.received
    assert new != old
    assert during.verified(old) == during.verified(new)
    assert after.verified(new)["type"] == "alert.resolved"
    with pytest.raises(WebhookVerificationError):
        after.verified(old)


def test_secrets_are_stored_encrypted(endpoint_at: EndpointAt) -> None:
    endpoint, secret = endpoint_at(NOWHERE)

    stored = bytes(WebhookEndpoint.objects.get().secret)

    assert secret.encode() not in stored
    assert encryption.decrypt(stored).decode() == secret
    assert endpoint.previous_secret is None


def test_a_secret_that_cannot_be_read_loses_no_message(
    user: MemoryUser, endpoint_at: EndpointAt, settings: Settings
) -> None:
    with receiver() as server:
        endpoint, secret = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        right = settings.UAC_ENCRYPTION_KEYS
        settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
        for _ in range(12):
            send_when_due(endpoint)
        assert told(endpoint) == [("alert.opened", "pending")]
        assert "UAC_ENCRYPTION_KEYS" in the_delivery(endpoint).last_error
        assert the_delivery(endpoint).attempts == 0

        settings.UAC_ENCRYPTION_KEYS = right
        send_when_due(endpoint)

    assert server.received[0].verified(secret)["type"] == "alert.opened"


def test_an_endpoint_inside_is_not_created(endpoint_at: EndpointAt, settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = []

    with pytest.raises(AddressRefused, match="not a public internet address"):
        endpoint_at(NOWHERE)


def test_a_workspace_has_so_many_endpoints(
    endpoint_at: EndpointAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_endpoints, "MAX_ENDPOINTS", 1)
    endpoint_at(NOWHERE)

    with pytest.raises(webhook_endpoints.TooManyEndpoints):
        endpoint_at(NOWHERE)


# -- Again -------------------------------------------------------------------------------------


def test_replay_sends_the_same_message(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        delivery = the_delivery(endpoint)
        with pytest.raises(outbox.DeliveryPending):
            outbox.replay(delivery)
        send(endpoint)

        outbox.replay(delivery)
        assert (delivery.state, delivery.settled_at) == (DeliveryState.PENDING, None)
        send(endpoint)

    first, second = server.received
    assert (first.id, first.body) == (second.id, second.body)
    assert told(endpoint) == [("alert.opened", "delivered")]


def test_abandoned_messages_are_resent_in_order(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-0")))
        moment = timezone.now()
        Delivery.objects.update(created_at=moment - datetime.timedelta(hours=1))
        run_finds(user, finding(record("m-0")), finding(record("m-1")))
        resolve(user, "m-1")
        Delivery.objects.update(state=DeliveryState.GIVEN_UP, attempts=10, settled_at=moment)

        assert outbox.replay_given_up(endpoint, moment - datetime.timedelta(minutes=1)) == 2
        send(endpoint)

    assert kinds(server.received) == ["alert.opened", "alert.resolved"]
    assert [state for _, state in told(endpoint)] == ["given_up", "delivered", "delivered"]


def test_ping_is_sent_once_and_not_counted(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver(answers(500), answers(200)) as server:
        endpoint, secret = endpoint_at(server.url)
        outbox.send_test(endpoint)
        send(endpoint)
        outbox.send_test(endpoint)
        send(endpoint)

    assert [call.verified(secret)["type"] for call in server.received] == ["ping", "ping"]
    assert sorted(state for _, state in told(endpoint)) == ["delivered", "given_up"]
    endpoint.refresh_from_db()
    assert endpoint.failing_since is None
    webhook_endpoints.disable(endpoint, "tests")
    with pytest.raises(outbox.Disabled):
        outbox.send_test(endpoint)


def test_the_log_of_long_ago_is_forgotten(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    with receiver() as server:
        endpoint, _ = endpoint_at(server.url)
        run_finds(user, finding(record("m-1")))
        send(endpoint)
        resolve(user, "m-1")
        long_ago = timezone.now() - datetime.timedelta(days=31)
        Delivery.objects.filter(seq=1).update(settled_at=long_ago)
        Delivery.objects.filter(seq=2).update(created_at=long_ago)

    assert outbox.purge(10) == 1
    assert told(endpoint) == [("alert.resolved", "pending")]
    assert not DeliveryAttempt.objects.exists()


def test_claiming_reads_few_rows_of_many(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    # Given thousands of messages that became due at the same moment, as after a replay
    endpoint, _ = endpoint_at(NOWHERE)
    run_finds(user, finding(record("m-1")))
    known = Alert.objects.values().get()
    some = [Alert(**{**known, "id": uuid.uuid4(), "fingerprint": str(n)}) for n in range(1000)]
    messages = Alert.objects.bulk_create(some) * 3
    first = the_delivery(endpoint)
    Delivery.objects.bulk_create(
        Delivery(endpoint=endpoint, alert=alert, seq=seq, run_after=first.run_after, payload="{}")
        for seq, alert in enumerate(messages, 2)
    )

    # When the next one is looked for
    with CaptureQueriesContext(connection) as queries:
        assert delivery_attempts.claim(str(endpoint.pk)) == first

    # Then it is found in an index, and so is how many are being sent
    plans = [
        explain(query["sql"])
        for query in queries.captured_queries
        if query["sql"].startswith("SELECT") and 'FROM "memory_delivery"' in query["sql"]
    ]
    assert len(plans) == 2
    for steps in plans:
        assert "Sort" not in {step["Node Type"].removeprefix("Incremental ") for step in steps}
        (scan,) = [step for step in steps if step.get("Alias") == "memory_delivery"]
        assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) < 10


def test_a_deleted_endpoint_takes_its_log_along(user: MemoryUser, endpoint_at: EndpointAt) -> None:
    endpoint, _ = endpoint_at(NOWHERE)
    run_finds(user, finding(record("m-1")))
    send(endpoint)

    webhook_endpoints.delete(endpoint)

    assert not WebhookEndpoint.objects.exists()
    assert not DeliveryAttempt.objects.exists()
    run_finds(user)
