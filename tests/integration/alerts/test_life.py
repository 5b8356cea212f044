"""The life of an alert: it opens once, stays while it is found, and resolves when it is not."""

import datetime
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts import alert_actions, reconcile
from memory.alerts.alert_actions import AlertNotOpen
from memory.alerts.findings import ConstraintFinding, failure
from memory.alerts.models.alerts import Alert, AlertKind, AlertState, Severity
from memory.kernel.models.users import MemoryUser
from memory.project.errors import RunError
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint, make_run

pytestmark = pytest.mark.django_db

ALLERGY = "constraints/allergy.py"
PASSPORT = "constraints/passport.py"
BOTH = (ALLERGY, PASSPORT)


def record(key: str, *sources: int, collection: str = "medications") -> dict[str, Any]:
    return {
        "class": "Medication",
        "domain": "health",
        "collection": collection,
        "key": key,
        "sources": list(sources),
    }


def finding(*evidence: dict[str, Any], **fields: Any) -> ConstraintFinding:
    defaults: dict[str, Any] = {
        "constraint": ALLERGY,
        "severity": Severity.CRITICAL,
        "message": "Amoxicillin conflicts with the penicillin allergy",
    }
    return ConstraintFinding(**{**defaults, **fields}, evidence=evidence)


def run_finds(
    user: MemoryUser,
    *findings: ConstraintFinding,
    version: int = 1,
    instant: datetime.datetime | None = None,
    completed: Sequence[str] = BOTH,
    existing: Sequence[str] = BOTH,
) -> bool:
    checkpoint = user.checkpoints.filter(version=version).first() or make_checkpoint(user, version)
    run = make_run(checkpoint, instant=instant)
    return reconcile.apply(run, findings, completed=completed, existing=existing)


def states(user: MemoryUser) -> list[str]:
    return [alert.state for alert in Alert.objects.filter(user=user).order_by("opened_at")]


def history(user: MemoryUser) -> list[str]:
    return [event.kind for event in Alert.objects.get(user=user).events.order_by("id")]


def test_a_finding_opens_an_alert_that_leads_to_records_and_entries(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1", 41, 7), record("a-1", 3)))

    alert = Alert.objects.get(user=user)
    assert alert.state == AlertState.OPEN
    assert alert.severity == Severity.CRITICAL
    assert [item["key"] for item in alert.evidence] == ["m-1", "a-1"]
    assert alert.entries == [3, 7, 41]
    assert history(user) == ["opened"]


def test_the_same_finding_again_changes_nothing(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1", 1)))
    run_finds(user, finding(record("m-1", 1)))

    assert states(user) == ["open"]
    assert history(user) == ["opened"]
    assert Alert.objects.get(user=user).last_run == Run.objects.latest("queued_at")


def test_a_reworded_finding_is_the_same_alert(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1", 1)))
    run_finds(user, finding(record("m-1", 1), message="now worse", severity=Severity.WARNING))

    alert = Alert.objects.get(user=user)
    assert (alert.message, alert.severity) == ("now worse", Severity.WARNING)
    assert history(user) == ["opened", "changed"]
    assert alert.events.get(kind="changed").detail == {
        "changed": ["severity", "message"],
        "before": {"severity": "critical", "message": finding().message},
        "after": {"severity": "warning", "message": "now worse"},
    }


def test_wording_alone_is_shown_and_told_to_nobody(user: MemoryUser) -> None:
    """A countdown whose wording changes every day must not be news every day."""
    for days in (3, 2, 1):
        run_finds(user, finding(record("m-1", 1), message=f"{days} days left"))

    assert Alert.objects.get(user=user).message == "1 days left"
    assert history(user) == ["opened"]


def test_alerts_are_listed_with_past_states(api: APIClient, user: MemoryUser) -> None:
    """In Berlin at noon, on six days: found, acknowledged, gone, found again, and gone."""
    noon = datetime.datetime(2026, 3, 1, 11, tzinfo=datetime.UTC)

    def on(day: int) -> AbstractContextManager[object]:
        return time_machine.travel(noon + datetime.timedelta(days=day - 1), tick=False)

    with on(1):
        run_finds(user, finding(record("m-1", 1)))
    with on(2):
        alert_actions.acknowledge(Alert.objects.get(), actor="key:x")
    with on(3):
        run_finds(user)
    with on(5):
        run_finds(user, finding(record("m-1", 1)))
    with on(6):
        run_finds(user)

    def live(as_of: str, path: str = "/v1/users/ada/alerts/") -> list[str]:
        found = api.get(path, {"as_of": as_of}).data["results"]
        return [alert["state_then"] for alert in found]

    days = [live(f"2026-03-0{day}") for day in (1, 2, 3, 4, 5, 6)]
    assert days == [["open"], ["acknowledged"], [], [], ["open"], []]
    assert live("2026-02-28") == []
    assert live("2026-03-01T11:59") == []  # an hour ahead of UTC, before noon
    assert live("2026-03-01T11:00Z", "/v1/alerts/") == ["open"]
    assert api.get("/v1/alerts/", {"as_of": "someday"}).status_code == 400
    assert api.get("/v1/events/", {"as_of": "2026-03-01"}).status_code == 400


def test_evidence_in_another_order_is_the_same_alert(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1"), record("m-2")))
    run_finds(user, finding(record("m-2"), record("m-1")))

    assert len(states(user)) == 1


@pytest.mark.parametrize(
    "other",
    [
        finding(record("m-2")),
        finding(record("m-1", collection="allergies")),
        finding(record("m-1"), constraint=PASSPORT),
        finding(record("m-1"), key="explicit"),
    ],
)
def test_another_subject_is_another_alert(user: MemoryUser, other: ConstraintFinding) -> None:
    run_finds(user, finding(record("m-1")), other)

    assert states(user) == ["open", "open"]


def test_an_explicit_key_outlives_its_evidence(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1"), key="budget-2026"))
    run_finds(user, finding(record("m-1"), record("m-2"), key="budget-2026"))

    assert states(user) == ["open"]


def test_found_twice_in_one_run_it_is_one_alert_of_the_higher_severity(user: MemoryUser) -> None:
    run_finds(
        user,
        finding(record("m-1"), severity=Severity.INFO),
        finding(record("m-1")),
    )

    assert Alert.objects.get(user=user).severity == Severity.CRITICAL


def test_no_longer_found_it_resolves_and_found_again_it_is_a_new_alert(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))
    run_finds(user)
    assert states(user) == ["resolved"]
    assert history(user) == ["opened", "resolved"]

    run_finds(user, finding(record("m-1")))
    assert states(user) == ["resolved", "open"]


def test_a_constraint_that_failed_has_not_said_that_all_is_well(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))

    error = RunError(type="ZeroDivisionError", message="division by zero", line=7)
    run_finds(user, failure(ALLERGY, error), completed=[PASSPORT])

    found = Alert.objects.get(user=user, kind=AlertKind.FINDING)
    failed = Alert.objects.get(user=user, kind=AlertKind.CONSTRAINT_ERROR)
    assert found.state == AlertState.OPEN
    assert "line 7" in failed.message
    assert "ZeroDivisionError" in failed.message

    run_finds(user, finding(record("m-1")))
    failed.refresh_from_db()
    assert failed.state == AlertState.RESOLVED


def test_a_deleted_constraint_takes_its_alerts_along(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))
    run_finds(user, completed=[PASSPORT], existing=[PASSPORT])

    assert states(user) == ["resolved"]
    event = Alert.objects.get(user=user).events.latest("id")
    assert event.detail == {"reason": "constraint deleted"}


def test_results_of_an_older_version_are_not_applied(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")), version=1)
    make_checkpoint(user, 2)
    run_finds(user, finding(record("m-2")), version=2)

    assert not run_finds(user, finding(record("m-1")), version=1)

    live = Alert.objects.get(user=user, state=AlertState.OPEN)
    assert live.evidence[0]["key"] == "m-2"


def test_results_of_an_earlier_instant_are_not_applied(user: MemoryUser) -> None:
    now = timezone.now()
    run_finds(user, instant=now)

    assert not run_finds(user, finding(record("m-1")), instant=now - datetime.timedelta(days=1))
    assert states(user) == []


def test_acknowledged_it_stays_so_while_it_is_found(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))
    alert = Alert.objects.get(user=user)

    alert_actions.acknowledge(alert, actor="staff:eve", note="seen")
    alert_actions.acknowledge(alert, actor="staff:eve", note="seen again")
    run_finds(user, finding(record("m-1")))

    assert states(user) == ["acknowledged"]
    assert history(user) == ["opened", "acknowledged"]
    assert alert.events.latest("id").detail == {"note": "seen"}


def test_acknowledged_it_opens_again_when_it_gets_worse(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1"), severity=Severity.WARNING))
    alert_actions.acknowledge(Alert.objects.get(user=user), actor="staff:eve")

    run_finds(user, finding(record("m-1"), severity=Severity.INFO))
    assert states(user) == ["acknowledged"]
    run_finds(user, finding(record("m-1"), severity=Severity.CRITICAL))
    assert states(user) == ["open"]


def test_manual_resolution_keeps_actor_and_reason(
    user: MemoryUser,
) -> None:
    run_finds(user, finding(record("m-1")))
    alert = Alert.objects.get(user=user)

    alert_actions.resolve(alert, actor="key:abc", reason="told the person")

    event = alert.events.latest("id")
    assert (event.actor, event.detail) == ("key:abc", {"reason": "told the person"})
    with pytest.raises(AlertNotOpen):
        alert_actions.resolve(alert, actor="key:abc", reason="again")
    with pytest.raises(AlertNotOpen):
        alert_actions.acknowledge(alert, actor="key:abc")
    assert history(user) == ["opened", "resolved"]
