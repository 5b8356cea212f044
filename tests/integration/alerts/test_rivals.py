"""Several dispatchers, workers and people at the same alerts: each step is taken once."""

import datetime

import time_machine
from django.db import transaction
from django.utils import timezone

from memory.alerts import alert_actions
from memory.alerts.models.alerts import Alert, AlertEvent
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.rivals import run_at_once

HOUR = datetime.timedelta(hours=1)


def test_rivals_wake_and_escalate_each_alert_once(live_database: str, workspace: Workspace) -> None:
    users = [create_user(workspace, f"user-{number}", metadata=None) for number in range(12)]
    until = timezone.now() + HOUR
    for user in users:
        with transaction.atomic():
            run_finds(user, finding(record("m-1")), finding(record("m-2")))
        snoozed, waiting = Alert.objects.filter(user=user)
        alert_actions.snooze(snoozed, actor="staff:eve", until=until)
        Alert.objects.filter(pk=waiting.pk).update(escalate_at=until)

    def dispatch() -> None:
        for _ in range(60):
            alert_actions.wake(5)
            alert_actions.escalate(5)

    def find() -> None:
        for user in users[:3] * 60:
            with transaction.atomic():
                run_finds(user, finding(record("m-1")), finding(record("m-2")))

    with time_machine.travel(until + HOUR, tick=True):
        run_at_once(dispatch, dispatch, dispatch, find)
        while alert_actions.wake(100) or alert_actions.escalate(100):
            pass

    kinds = list(AlertEvent.objects.values_list("alert", "kind"))
    assert sum(kind == "reopened" for _, kind in kinds) == 12
    assert sum(kind == "escalated" for _, kind in kinds) == 12
    assert len(set(kinds)) == len(kinds)
    assert set(Alert.objects.values_list("state", flat=True)) == {"open"}
