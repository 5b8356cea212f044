"""People and the clock act on an alert while a run of the constraints does: each waits.

Each act is in the feed as it was done, in a sensible order.
"""

import datetime
from collections.abc import Callable

import pytest
from django.db import transaction
from django.utils import timezone

from memory.alerts import alert_actions, reconcile
from memory.alerts.alert_actions import AlertNotOpen
from memory.alerts.models.alerts import Alert, AlertEvent, AlertState
from memory.kernel.models.users import MemoryUser
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.rivals import Act, at_the_lock

pytestmark = pytest.mark.usefixtures("live_database")

JustBefore = Callable[[object, str, Act], None]
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def alert(user: MemoryUser) -> Alert:
    with transaction.atomic():
        run_finds(user, finding(record("m-1", 1)))
    return Alert.objects.get(user=user)


def snooze_until_now(alert: Alert) -> None:
    alert_actions.snooze(alert, actor="eve", until=timezone.now() + HOUR)
    Alert.objects.update(snoozed_until=timezone.now())


def told() -> list[str]:
    return list(AlertEvent.objects.order_by("seq").values_list("kind", flat=True))


def test_acknowledged_while_it_is_being_resolved_it_stays_resolved(
    user: MemoryUser, alert: Alert, just_before: JustBefore
) -> None:
    with at_the_lock(lambda: alert_actions.acknowledge(alert, actor="eve")) as eve:
        just_before(reconcile, "resolve_alert", eve.start_and_wait_for_lock)
        with transaction.atomic():
            run_finds(user)  # nothing any more

    # She gets an error, and nothing says that she had seen the alert that was gone.
    assert isinstance(eve.error, AlertNotOpen)
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED
    assert told() == ["opened", "resolved"]


def test_resolved_while_it_is_being_acknowledged_both_are_told_in_order(
    user: MemoryUser, alert: Alert, just_before: JustBefore
) -> None:
    def resolve() -> None:
        with transaction.atomic():
            run_finds(user)

    with at_the_lock(resolve) as run:
        just_before(alert_actions, "put_aside", run.start_and_wait_for_lock)
        alert_actions.acknowledge(alert, actor="eve")

    assert run.error is None
    alert.refresh_from_db()
    assert (alert.state, alert.escalate_at) == (AlertState.RESOLVED, None)
    assert told() == ["opened", "acknowledged", "resolved"]


def test_acknowledgement_prevents_due_escalation(alert: Alert, just_before: JustBefore) -> None:
    """The clock has listed the alert for escalation when she acknowledges it."""
    Alert.objects.update(escalate_at=timezone.now())
    just_before(alert_actions, "_escalate", lambda: alert_actions.acknowledge(alert, actor="eve"))

    assert alert_actions.escalate(10) == 0

    alert.refresh_from_db()
    assert (alert.state, alert.escalated_at) == (AlertState.ACKNOWLEDGED, None)
    assert told() == ["opened", "acknowledged"]


def test_clock_skips_alert_being_acknowledged(alert: Alert, just_before: JustBefore) -> None:
    Alert.objects.update(escalate_at=timezone.now())
    escalated: list[int] = []
    with at_the_lock(lambda: escalated.append(alert_actions.escalate(10))) as clock:
        just_before(alert_actions, "put_aside", clock.start_and_wait_for_end)
        alert_actions.acknowledge(alert, actor="eve")

    assert (escalated, clock.error) == ([0], None)
    assert told() == ["opened", "acknowledged"]


def test_acknowledged_alert_does_not_wake(alert: Alert, just_before: JustBefore) -> None:
    snooze_until_now(alert)
    just_before(alert_actions, "_wake", lambda: alert_actions.acknowledge(alert, actor="eve"))

    assert alert_actions.wake(10) == 0

    alert.refresh_from_db()
    assert (alert.state, alert.snoozed_until) == (AlertState.ACKNOWLEDGED, None)
    assert told() == ["opened", "snoozed", "acknowledged"]


def test_acknowledgement_follows_waking(alert: Alert, just_before: JustBefore) -> None:
    snooze_until_now(alert)
    with at_the_lock(lambda: alert_actions.acknowledge(alert, actor="eve")) as eve:
        just_before(alert_actions, "reopen_alert", eve.start_and_wait_for_lock)
        assert alert_actions.wake(10) == 1

    assert eve.error is None
    alert.refresh_from_db()
    assert alert.state == AlertState.ACKNOWLEDGED
    assert told() == ["opened", "snoozed", "reopened", "acknowledged"]
