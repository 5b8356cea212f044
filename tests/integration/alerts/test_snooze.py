"""Snoozing alerts, undoing that, and what a resolution by hand suppresses."""

import datetime
from dataclasses import replace

import pytest
import time_machine
from django.utils import timezone

from memory.alerts import alert_actions
from memory.alerts.alert_actions import AlertNotOpen, SnoozeRefused
from memory.alerts.findings import failure
from memory.alerts.models.alerts import Alert, AlertState, Severity
from memory.kernel.models.users import MemoryUser
from memory.project.errors import RunError
from tests.integration.alerts.test_life import (
    ALLERGY,
    PASSPORT,
    finding,
    history,
    record,
    run_finds,
    states,
)
from workers.service import dispatching

pytestmark = pytest.mark.django_db

HOUR = datetime.timedelta(hours=1)


def opened(user: MemoryUser, severity: Severity = Severity.WARNING) -> Alert:
    run_finds(user, finding(record("m-1", 1), severity=severity))
    return Alert.objects.get(user=user)


def detail(alert: Alert) -> dict[str, object]:
    found: dict[str, object] = alert.events.latest("seq").detail
    return found


# -- Snooze ------------------------------------------------------------------------------------


def test_snoozed_until_a_moment_it_sleeps_until_then_and_wakes_once(user: MemoryUser) -> None:
    alert = opened(user)
    until = timezone.now() + HOUR
    alert_actions.snooze(alert, actor="staff:eve", until=until, note="on holiday")

    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING, message="reworded"))
    run_finds(user, finding(record("m-1", 1, 2), severity=Severity.WARNING))
    assert dispatching.dispatch()["woken"] == 0
    assert states(user) == ["snoozed"]
    event = alert.events.get(kind="snoozed")
    assert (event.actor, event.detail) == (
        "staff:eve",
        {"until": until.isoformat(), "note": "on holiday"},
    )

    with time_machine.travel(until + datetime.timedelta(seconds=1)):
        assert alert_actions.wake(10) == 1
        assert alert_actions.wake(10) == 0
    alert.refresh_from_db()
    assert (alert.state, alert.snoozed_until) == (AlertState.OPEN, None)
    assert alert.open_since >= until
    woken = alert.events.latest("seq")
    assert (woken.kind, woken.actor) == ("reopened", "clock")
    assert "snoozed until" in woken.detail["reason"]


@pytest.mark.parametrize(
    ("changed", "wakes"),
    [
        ({"message": "expires in 11 days"}, False),
        ({"severity": Severity.INFO}, True),
        ({"severity": Severity.CRITICAL}, True),
        ({}, False),
    ],
)
def test_snoozed_until_it_changes_wording_is_no_change(
    user: MemoryUser, changed: dict[str, object], wakes: bool
) -> None:
    alert = opened(user)
    alert_actions.snooze(alert, actor="staff:eve", until=None)

    fields: dict[str, object] = {"severity": Severity.WARNING, **changed}
    run_finds(user, finding(record("m-1", 1), **fields))

    assert states(user) == (["open"] if wakes else ["snoozed"])


def test_new_entry_behind_record_ends_snooze(
    user: MemoryUser,
) -> None:
    run_finds(user, finding(record("m-1", 1), record("m-2", 2)))
    alert = Alert.objects.get(user=user)
    alert_actions.snooze(alert, actor="staff:eve", until=None)

    run_finds(user, finding(record("m-2", 2), record("m-1", 1)))
    assert history(user) == ["opened", "snoozed"]

    run_finds(user, finding(record("m-2", 2, 9), record("m-1", 1)))
    assert history(user) == ["opened", "snoozed", "reopened"]
    assert detail(alert) == {"reason": "changed", "changed": ["evidence"]}
    alert.refresh_from_db()
    assert alert.entries == [1, 2, 9]


def test_finding_without_records_changes_by_its_wording(user: MemoryUser) -> None:
    run_finds(user, finding(key="budget", message="800 of 1000"))
    alert_actions.snooze(Alert.objects.get(user=user), actor="staff:eve", until=None)

    run_finds(user, finding(key="budget", message="900 of 1000"))

    assert states(user) == ["open"]


def test_more_severity_ends_any_snooze(user: MemoryUser) -> None:
    alert = opened(user)
    alert_actions.snooze(alert, actor="staff:eve", until=timezone.now() + HOUR)

    run_finds(user, finding(record("m-1", 1), severity=Severity.CRITICAL))

    alert.refresh_from_db()
    assert (alert.state, alert.snoozed_until) == ("open", None)
    assert detail(alert) == {"reason": "more severe", "changed": ["severity"]}


def test_snoozed_and_no_longer_found_it_resolves_and_never_wakes(user: MemoryUser) -> None:
    alert = opened(user)
    until = timezone.now() + HOUR
    alert_actions.snooze(alert, actor="staff:eve", until=until)

    run_finds(user)

    with time_machine.travel(until + HOUR):
        assert alert_actions.wake(10) == 0
    assert history(user) == ["opened", "snoozed", "resolved"]


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (datetime.timedelta(0), "already passed"),
        (-HOUR, "already passed"),
        (datetime.timedelta(days=367), "366 days"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(
    user: MemoryUser, wait: datetime.timedelta, words: str
) -> None:
    alert = opened(user)

    with pytest.raises(SnoozeRefused, match=words):
        alert_actions.snooze(alert, actor="staff:eve", until=timezone.now() + wait)

    assert history(user) == ["opened"]


def test_snooze_and_acknowledgement_replace_each_other(
    user: MemoryUser,
) -> None:
    alert = opened(user)
    alert_actions.snooze(alert, actor="staff:eve", until=timezone.now() + HOUR)
    alert_actions.acknowledge(alert, actor="staff:eve")
    alert.refresh_from_db()
    assert (alert.state, alert.snoozed_until) == ("acknowledged", None)

    alert_actions.reopen(alert, actor="key:abc", note="too early")

    assert states(user) == ["open"]
    assert detail(alert) == {"reason": "manually", "note": "too early"}
    with pytest.raises(AlertNotOpen, match="already open"):
        alert_actions.reopen(alert, actor="key:abc")


def test_the_manifest_leaves_out_what_is_put_off(user: MemoryUser) -> None:
    from memory.recall.retrieval import open_alerts

    alert = opened(user)
    assert open_alerts(user) == [alert]
    alert_actions.snooze(alert, actor="staff:eve", until=None)
    assert open_alerts(user) == []


# -- Resolved by hand --------------------------------------------------------------------------


def test_resolved_by_hand_it_stays_so_while_the_same_is_found(user: MemoryUser) -> None:
    alert = opened(user)
    alert_actions.resolve(alert, actor="staff:eve", reason="told the person")

    for message in ("the same", "in other words"):
        run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING, message=message))

    assert states(user) == ["resolved"]
    assert history(user) == ["opened", "resolved"]


def test_resolved_by_hand_a_change_opens_a_new_alert(user: MemoryUser) -> None:
    alert_actions.resolve(opened(user), actor="staff:eve", reason="told the person")

    run_finds(user, finding(record("m-1", 1, 7), severity=Severity.WARNING))
    assert states(user) == ["resolved", "open"]

    # Once the finding is gone, nothing is suppressed any more.
    run_finds(user)
    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING))
    assert states(user) == ["resolved", "resolved", "open"]


def test_resolved_by_hand_and_gone_it_opens_anew_when_it_comes_back(user: MemoryUser) -> None:
    alert_actions.resolve(opened(user), actor="staff:eve", reason="told the person")
    run_finds(user, completed=[PASSPORT])  # it failed, which says nothing
    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING))
    assert states(user) == ["resolved"]

    run_finds(user)
    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING))
    assert states(user) == ["resolved", "open"]


def test_failure_resolved_by_hand_stays_closed(
    user: MemoryUser,
) -> None:
    error = RunError(type="ZeroDivisionError", message="division by zero", line=7)
    run_finds(user, failure(ALLERGY, error), completed=[PASSPORT])
    alert_actions.resolve(Alert.objects.get(user=user), actor="staff:eve", reason="known")

    run_finds(user, failure(ALLERGY, error), completed=[PASSPORT])
    assert states(user) == ["resolved"]
    run_finds(user, failure(ALLERGY, replace(error, line=8)), completed=[PASSPORT])
    assert states(user) == ["resolved", "open"]


def test_a_resolution_that_still_holds_can_be_taken_back(user: MemoryUser) -> None:
    alert = opened(user)
    alert_actions.resolve(alert, actor="staff:eve", reason="a mistake")

    alert_actions.reopen(alert, actor="staff:eve")
    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING))
    assert states(user) == ["open"]
    alert.refresh_from_db()
    assert alert.resolved_at is None

    run_finds(user)
    with pytest.raises(AlertNotOpen, match="no longer exists"):
        alert_actions.reopen(alert, actor="staff:eve")


# -- Escalation --------------------------------------------------------------------------------


def minutes_later(minutes: float) -> time_machine.travel:
    return time_machine.travel(timezone.now() + datetime.timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("severity", "minutes"), [(Severity.CRITICAL, 60), (Severity.WARNING, 24 * 60)]
)
def test_open_alert_is_escalated_once(user: MemoryUser, severity: Severity, minutes: int) -> None:
    alert = opened(user, severity)

    with minutes_later(minutes - 1):
        assert alert_actions.escalate(10) == 0
    with minutes_later(minutes + 1):
        assert alert_actions.escalate(10) == 1
        assert alert_actions.escalate(10) == 0
    with minutes_later(10 * minutes):
        assert alert_actions.escalate(10) == 0

    alert.refresh_from_db()
    assert alert.state == "open"
    assert alert.escalated_at is not None
    assert history(user) == ["opened", "escalated"]


def test_an_info_is_never_escalated_unless_the_workspace_says_so(user: MemoryUser) -> None:
    opened(user, Severity.INFO)
    with minutes_later(10**6):
        assert alert_actions.escalate(10) == 0

    user.workspace.escalate_info_minutes = 5
    user.workspace.escalate_critical_minutes = 0
    user.workspace.save()
    run_finds(user)
    run_finds(user, finding(record("m-2", 2), severity=Severity.INFO), finding(record("m-3", 3)))
    with minutes_later(6):
        assert alert_actions.escalate(10) == 1
    with minutes_later(10**6):
        assert alert_actions.escalate(10) == 0
    assert Alert.objects.get(escalated_at__isnull=False).severity == Severity.INFO


def test_handled_alert_is_not_escalated(user: MemoryUser) -> None:
    run_finds(user, *(finding(record(f"m-{n}", n)) for n in (1, 2, 3)))
    first, second, third = Alert.objects.filter(user=user)
    alert_actions.acknowledge(first, actor="staff:eve")
    alert_actions.snooze(second, actor="staff:eve", until=None)
    alert_actions.resolve(third, actor="staff:eve", reason="done")

    with minutes_later(10**4):
        assert alert_actions.escalate(10) == 0


def test_reopened_it_may_be_escalated_again_counting_from_then(user: MemoryUser) -> None:
    alert = opened(user, Severity.CRITICAL)
    with minutes_later(61):
        alert_actions.escalate(10)
        alert_actions.acknowledge(alert, actor="staff:eve")
        alert_actions.reopen(alert, actor="staff:eve")
        assert alert_actions.escalate(10) == 0
    with minutes_later(122):
        assert alert_actions.escalate(10) == 1
    assert history(user).count("escalated") == 2


def test_graver_it_is_escalated_sooner_and_slighter_later(user: MemoryUser) -> None:
    alert = opened(user, Severity.WARNING)
    run_finds(user, finding(record("m-1", 1), severity=Severity.CRITICAL))
    alert.refresh_from_db()
    assert alert.escalate_at is not None
    assert alert.escalate_at - timezone.now() < datetime.timedelta(minutes=61)

    run_finds(user, finding(record("m-1", 1), severity=Severity.WARNING))
    alert.refresh_from_db()
    assert alert.escalate_at == alert.opened_at + datetime.timedelta(hours=24)
    run_finds(user, finding(record("m-1", 1), severity=Severity.INFO))
    alert.refresh_from_db()
    assert alert.escalate_at is None
