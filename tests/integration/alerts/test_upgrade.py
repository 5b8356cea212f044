"""Events from before the feed get their numbers when a server is upgraded."""

from importlib import import_module

import pytest
from django.db import connection
from django.db.models import F

from memory import alerts
from memory.models import Alert, AlertEvent, EventCounter, MemoryUser
from tests.integration.alerts.test_life import finding, record, run_finds

NUMBERS = import_module("memory.migrations.0007_delivery").NUMBERS


@pytest.mark.django_db
def test_old_events_are_numbered_in_the_order_in_which_they_happened(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))
    run_finds(user)
    run_finds(user, finding(record("m-2")))
    alerts.acknowledge(Alert.objects.get(user=user, state="open"), actor="key:x")
    before = list(AlertEvent.objects.order_by("seq").values_list("kind", "seq"))
    AlertEvent.objects.update(seq=-F("seq"))
    EventCounter.objects.all().delete()

    with connection.cursor() as cursor:
        cursor.execute(NUMBERS)

    assert list(AlertEvent.objects.order_by("seq").values_list("kind", "seq")) == before
    assert EventCounter.objects.get().last_seq == len(before) == 4
