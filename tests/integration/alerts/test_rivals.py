"""Several dispatchers, workers and people at the same alerts: each step is taken once."""

import datetime
import threading

import time_machine
from django.db import connection, transaction
from django.utils import timezone

from memory.alerting import lifecycle
from memory.models import Alert, AlertEvent, Workspace
from memory.users import create_user
from tests.integration.alerts.test_life import finding, record, run_finds

HOUR = datetime.timedelta(hours=1)


def test_rival_dispatchers_and_people_wake_and_escalate_each_alert_once(
    live_database: str, workspace: Workspace
) -> None:
    users = [create_user(workspace, f"user-{number}", metadata=None) for number in range(12)]
    until = timezone.now() + HOUR
    for user in users:
        with transaction.atomic():
            run_finds(user, finding(record("m-1")), finding(record("m-2")))
        snoozed, waiting = Alert.objects.filter(user=user)
        lifecycle.snooze(snoozed, actor="staff:eve", until=until)
        Alert.objects.filter(pk=waiting.pk).update(escalate_at=until)
    barrier = threading.Barrier(4)

    def rival(step: int) -> None:
        barrier.wait()
        for _ in range(60):
            if step < 3:
                lifecycle.wake(5)
                lifecycle.escalate(5)
            else:
                for user in users[:3]:
                    with transaction.atomic():
                        run_finds(user, finding(record("m-1")), finding(record("m-2")))
        connection.close()

    with time_machine.travel(until + HOUR, tick=True):
        threads = [threading.Thread(target=rival, args=(step,)) for step in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while lifecycle.wake(100) or lifecycle.escalate(100):
            pass

    kinds = list(AlertEvent.objects.values_list("alert", "kind"))
    assert sum(kind == "reopened" for _, kind in kinds) == 12
    assert sum(kind == "escalated" for _, kind in kinds) == 12
    assert len(set(kinds)) == len(kinds)
    assert set(Alert.objects.values_list("state", flat=True)) == {"open"}
