"""Prometheus metrics of webhooks."""

import datetime

from django.db import transaction
from django.utils import timezone
from prometheus_client import CollectorRegistry

from memory.alerts.delivery import webhook_endpoints
from memory.alerts.models.webhooks import Delivery
from memory.kernel.models.users import MemoryUser
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.webhooks.conftest import EndpointAt, send
from tests.webhook_receiver import answers, receiver
from workers.metrics import server_metrics
from workers.metrics.serving import Read


def test_messages_are_counted_by_what_became_of_them(
    live_database: str, user: MemoryUser, endpoint_at: EndpointAt
) -> None:
    with receiver() as server, receiver(answers(500)) as broken:
        good, _ = endpoint_at(server.url)
        failing, _ = endpoint_at(broken.url)
        off, _ = endpoint_at(server.url)
        with transaction.atomic():
            run_finds(user, finding(record("m-1")), finding(record("m-2")))
        webhook_endpoints.disable(off, "tests")
        send(good)
        send(failing)
    an_hour_ago = timezone.now() - datetime.timedelta(hours=1)
    Delivery.objects.filter(endpoint=failing, seq=1).update(created_at=an_hour_ago)
    Delivery.objects.filter(endpoint=off).update(
        created_at=an_hour_ago - datetime.timedelta(days=1)
    )
    registry = CollectorRegistry()
    registry.register(Read(*server_metrics.READS))

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    states = {
        state: told("uac_webhook_messages", state=state)
        for state in ("delivered", "pending", "held", "given_up")
    }
    assert states == {"delivered": 2, "pending": 2, "held": 2, "given_up": 0}
    age = told("uac_webhook_oldest_seconds")
    assert age is not None
    assert 3600 <= age < 3700
    for state in ("ok", "failing", "disabled"):
        assert told("uac_webhook_endpoints", state=state) == 1
