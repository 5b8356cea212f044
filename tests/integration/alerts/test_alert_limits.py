"""A constraint that exceeds its alert limit is paused, the staff are told, and it is resumed."""

from collections.abc import Sequence
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.utils import timezone

from memory.alerts import alert_actions, paused_constraints, reconcile
from memory.alerts.findings import ConstraintFinding, failure
from memory.alerts.models.alerts import Alert, AlertKind, AlertState, PausedConstraint, Severity
from memory.alerts.paused_constraints import NotPaused
from memory.kernel.models.users import MemoryUser
from memory.kernel.settings import alert_settings
from memory.project.errors import RunError
from memory.versions.models.runs import Run, RunTrigger
from tests.factories import make_checkpoint, make_run
from tests.integration.alerts.test_life import ALLERGY, BOTH, PASSPORT, finding, record, run_finds

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def few(user: MemoryUser) -> None:
    """Lower the limits to five alerts at once and eight openings a day, so tests stay small."""
    user.workspace.alerts_per_constraint = 5
    user.workspace.openings_per_day = 8
    user.workspace.save()


def found(*numbers: int, **fields: Any) -> list[ConstraintFinding]:
    return [finding(record(f"m-{number}", number), **fields) for number in numbers]


def live(user: MemoryUser) -> list[str]:
    alerts = Alert.objects.filter(user=user, kind=AlertKind.FINDING)
    return sorted(one.evidence[0]["key"] for one in alerts.exclude(state=AlertState.RESOLVED))


def paused_alert(user: MemoryUser) -> Alert:
    return Alert.objects.get(user=user, kind=AlertKind.CONSTRAINT_PAUSED)


def test_constraint_past_its_limit_opens_no_alert_and_open_ones_stay(user: MemoryUser) -> None:
    run_finds(user, *found(1, 2, severity=Severity.WARNING))
    run_finds(user, *found(*range(2, 8), severity=Severity.INFO), *found(9, constraint=PASSPORT))

    assert live(user) == ["m-1", "m-2", "m-9"]
    assert {one.severity for one in Alert.objects.filter(constraint=ALLERGY)} == {"warning"}
    row = PausedConstraint.objects.get(user=user)
    assert (row.constraint, row.paused_by, row.resumed_at) == (ALLERGY, "constraints", None)
    alert = paused_alert(user)
    assert (alert.severity, alert.constraint, alert.state) == ("warning", ALLERGY, "open")
    assert "6 alerts at once, more than 5" in alert.message
    assert "It opened no new alerts" in alert.message
    assert alert.message.count("info: Amoxicillin") == 3
    assert "resumed" in alert.message


def test_as_many_as_are_allowed_are_no_flood(user: MemoryUser) -> None:
    run_finds(user, *found(*range(5)))

    assert len(live(user)) == 5
    assert not PausedConstraint.objects.exists()


def test_while_paused_nothing_opens_changes_or_resolves(user: MemoryUser) -> None:
    run_finds(user, *found(1, 2))
    run_finds(user, *found(*range(10)))
    before = list(Alert.objects.order_by("pk").values())

    run_finds(user)
    run_finds(user, *found(1, message="other"), *found(*range(20, 30)))

    assert list(Alert.objects.order_by("pk").values()) == before
    assert PausedConstraint.objects.count() == 1


@pytest.mark.parametrize("at_once", [1, 6])
def test_critical_alert_after_the_pause_is_reported(user: MemoryUser, at_once: int) -> None:
    # Given a pause for a flood of slight findings, of which the staff know
    run_finds(user, *found(*range(6), severity=Severity.INFO))
    alert_actions.acknowledge(paused_alert(user), actor="staff:eve")

    # When the paused constraint finds something critical, again and again
    for _ in range(2):
        run_finds(user, *found(*range(at_once), severity=Severity.CRITICAL, message="poison"))

    # Then no alert is opened for it, and the staff's own is open again, once, and critical
    alert = paused_alert(user)
    assert (alert.state, alert.severity) == ("open", "critical")
    assert "Since then, it has reported critical: poison" in alert.message
    assert [one.kind for one in alert.events.order_by("seq")] == [
        *("opened", "acknowledged", "reopened")
    ]
    assert live(user) == []


def test_pausing_a_critical_constraint_is_critical(user: MemoryUser) -> None:
    run_finds(user, *found(*range(6), severity=Severity.WARNING), *found(7))

    alert = paused_alert(user)
    assert alert.severity == Severity.CRITICAL
    assert "It reported: critical: " in alert.message


def test_a_flood_that_the_sandbox_stopped_is_one_too(user: MemoryUser) -> None:
    run = make_run(make_checkpoint(user))
    quoted = [finding(key="1 of too many", message="the gravest")]

    reconcile.apply(run, [], completed=BOTH, existing=BOTH, over_limit={ALLERGY: quoted})

    assert live(user) == []
    alert = paused_alert(user)
    assert "more than 5 alerts at once" in alert.message
    assert "critical: the gravest" in alert.message
    assert alert.severity == "critical"


def test_too_many_openings_in_a_day_are_a_flood(user: MemoryUser) -> None:
    run_finds(user, *found(1, 2, 3, 4))
    run_finds(user, *found(5, 6, 7, 8))
    assert not PausedConstraint.objects.exists()

    run_finds(user, *found(5, 6, 7, 8, 9))

    assert live(user) == ["m-5", "m-6", "m-7", "m-8"]
    assert "more than 8 alerts within 24 hours" in paused_alert(user).message


def test_openings_of_yesterday_do_not_count(user: MemoryUser) -> None:
    run_finds(user, *found(1, 2, 3, 4))
    run_finds(user, *found(5, 6, 7, 8))
    with time_machine.travel(timezone.now() + alert_settings.DAY):
        run_finds(user, *found(5, 6, 7, 8, 9))

    assert "m-9" in live(user)
    assert not PausedConstraint.objects.exists()


def test_flapping_alert_is_paused_at_its_fifth_opening(
    user: MemoryUser,
) -> None:
    for _ in range(4):
        run_finds(user, *found(1))
        run_finds(user)
    assert not PausedConstraint.objects.exists()

    run_finds(user, *found(1))
    run_finds(user)

    assert live(user) == ["m-1"]
    assert Alert.objects.filter(kind=AlertKind.FINDING).count() == 5
    assert "the same alert 5 times" in paused_alert(user).message


def test_another_user_and_another_constraint_go_on(user: MemoryUser) -> None:
    from memory.kernel.users import create_user

    other = create_user(user.workspace, "bob", metadata=None)
    run_finds(user, *found(*range(6)))

    run_finds(other, *found(1))
    run_finds(user, *found(*range(6)), *found(3, constraint=PASSPORT))

    assert live(other) == ["m-1"]
    assert live(user) == ["m-3"]


def test_a_failure_of_a_paused_constraint_is_told_all_the_same(user: MemoryUser) -> None:
    run_finds(user, *found(*range(6)))
    error = RunError(type="ZeroDivisionError", message="division by zero", line=7)

    run_finds(user, failure(ALLERGY, error), completed=[PASSPORT])

    assert Alert.objects.filter(kind=AlertKind.CONSTRAINT_ERROR, state="open").count() == 1
    run_finds(user)
    assert Alert.objects.filter(kind=AlertKind.CONSTRAINT_ERROR, state="open").count() == 0


# -- Resuming ----------------------------------------------------------------------------------


def test_resumed_by_hand_it_runs_and_counts_anew(user: MemoryUser) -> None:
    user.head = make_checkpoint(user)
    user.save()
    run_finds(user, *found(1, 2, 3, 4))
    run_finds(user, *found(5, 6, 7, 8))
    run_finds(user, *found(*range(5, 10)))
    row = PausedConstraint.objects.get()

    paused_constraints.resume(row, actor="staff:eve", reason="the data were wrong")

    row.refresh_from_db()
    assert (row.resumed_by, row.resumed_because) == ("staff:eve", "the data were wrong")
    assert paused_alert(user).state == "resolved"
    assert Run.objects.filter(trigger=RunTrigger.RESUMED, checkpoint=user.head).count() == 1
    run_finds(user, *found(*range(5, 10)))
    assert "m-9" in live(user)
    with pytest.raises(NotPaused):
        paused_constraints.resume(row, actor="staff:eve", reason="again")


def test_to_resolve_the_staffs_alert_is_to_resume(user: MemoryUser) -> None:
    run_finds(user, *found(*range(6)))

    alert_actions.resolve(paused_alert(user), actor="staff:eve", reason="looked into it")

    assert PausedConstraint.objects.get().resumed_by == "staff:eve"
    run_finds(user, *found(1, 2))
    assert live(user) == ["m-1", "m-2"]


def test_resumed_constraint_past_its_limit_is_paused_again(user: MemoryUser) -> None:
    run_finds(user, *found(*range(6)))
    paused_constraints.resume(
        PausedConstraint.objects.get(), actor="staff:eve", reason="let us see"
    )

    run_finds(user, *found(*range(6)))

    assert live(user) == []
    assert PausedConstraint.objects.filter(resumed_at=None).count() == 1
    assert [one.state for one in Alert.objects.order_by("opened_at")] == ["resolved", "open"]


@pytest.mark.parametrize(
    ("tree", "existing", "because"),
    [
        ({ALLERGY: "b" * 64}, BOTH, "constraint changed"),
        ({}, [PASSPORT], "constraint deleted"),
    ],
)
def test_a_source_that_changed_or_is_gone_resumes_by_itself(
    user: MemoryUser, tree: dict[str, str], existing: Sequence[str], because: str
) -> None:
    first = make_checkpoint(user, tree={ALLERGY: "a" * 64})
    reconcile.apply(make_run(first), found(*range(6)), completed=BOTH, existing=BOTH)
    assert PausedConstraint.objects.get().source_hash == "a" * 64
    second = make_checkpoint(user, 2, tree=tree)

    reconcile.apply(make_run(second), [], completed=existing, existing=existing)

    row = PausedConstraint.objects.get()
    assert (row.resumed_by, row.resumed_because) == ("constraints", because)
    assert paused_alert(user).state == "resolved"


def test_a_new_version_with_the_same_source_stays_paused(user: MemoryUser) -> None:
    for version in (1, 2):
        checkpoint = make_checkpoint(user, version, tree={ALLERGY: "a" * 64})
        reconcile.apply(make_run(checkpoint), found(*range(6)), completed=BOTH, existing=BOTH)

    assert PausedConstraint.objects.get().resumed_at is None


def test_a_constraint_that_is_no_file_of_the_version_has_its_hash_told(user: MemoryUser) -> None:
    path = "workspace/constraints/drug_allergy.py"
    many = found(*range(6), constraint=path)
    checkpoint = make_checkpoint(user)
    for source, paused in (("a", True), ("a", True), ("b", False)):
        reconcile.apply(
            make_run(checkpoint),
            many if paused else many[:1],
            completed=[path],
            existing=[path],
            sources={path: source},
        )
        assert PausedConstraint.objects.filter(resumed_at=None).exists() is paused
    assert live(user) == ["m-0"]


# -- Settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alerts_per_constraint", 0),
        ("alerts_per_constraint", 1001),
        ("openings_per_day", 0),
        ("escalate_critical_minutes", 10**7),
    ],
)
def test_settings_that_make_no_sense_are_refused(user: MemoryUser, field: str, value: int) -> None:
    setattr(user.workspace, field, value)
    with pytest.raises(ValidationError) as refused:
        user.workspace.full_clean()
    assert list(refused.value.message_dict) == [field]
