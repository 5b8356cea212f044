"""A run of the constraints that the machine fails is tried again; it resolves nothing."""

from typing import Any

import pytest
from django.utils import timezone

from memory.models import Alert, Checkpoint, MemoryUser, Run
from memory.models.alerts import AlertKind, AlertState
from memory.models.runs import RunOutcome, RunStatus
from memory.project import Outline
from tests.factories import make_checkpoint, make_run
from tests.integration.alerts.test_life import finding, record, run_finds
from workers import constraints, tasks
from workers.sandbox.interface import Allowance, SandboxError

pytestmark = pytest.mark.django_db


def sandbox_that(error: SandboxError) -> Any:
    def loaded(checkpoint: Checkpoint, allowance: Allowance) -> None:
        raise error

    return loaded


def attempt(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(run_after=timezone.now())
    tasks.execute_run(str(run.pk))


def test_a_sandbox_that_breaks_is_tried_again_and_the_staff_know(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    outline = Outline().with_constraint("allergy", "").to_json()
    version = make_checkpoint(user, outline=outline)
    run_finds(user, finding(record("m-1", 1)))
    run = make_run(version)
    broken = SandboxError("killed", "the sandbox was killed", infrastructure=True)
    monkeypatch.setattr(constraints, "loaded", sandbox_that(broken))

    for _ in range(constraints.ATTEMPTS_BEFORE_ALERT - 1):
        with pytest.raises(SandboxError):
            attempt(run)
        run.refresh_from_db()
        assert run.status == RunStatus.RUNNING
        assert "the sandbox was killed" in run.last_error
        assert run.lease_expires_at is None
    assert [alert.kind for alert in Alert.objects.filter(user=user)] == [AlertKind.FINDING]

    with pytest.raises(SandboxError):
        attempt(run)
    found = Alert.objects.get(user=user, kind=AlertKind.FINDING)
    failed = Alert.objects.get(user=user, kind=AlertKind.CONSTRAINT_ERROR)
    assert (found.state, failed.state) == (AlertState.OPEN, AlertState.OPEN)
    assert "the sandbox was killed" in failed.message

    monkeypatch.undo()
    attempt(run)
    run.refresh_from_db()
    failed.refresh_from_db()
    assert (run.status, run.outcome) == (RunStatus.DONE, RunOutcome.OK)
    assert failed.state == AlertState.RESOLVED


def test_a_project_that_does_not_load_resolves_nothing_and_is_not_tried_again(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    outline = Outline().with_constraint("allergy", "").to_json()
    version = make_checkpoint(user, outline=outline)
    run_finds(user, finding(record("m-1", 1)))
    run = make_run(version)
    broken = SandboxError("out_of_memory", "needs more than 1 GiB")
    monkeypatch.setattr(constraints, "loaded", sandbox_that(broken))

    attempt(run)

    run.refresh_from_db()
    assert (run.status, run.outcome, run.attempts) == ("done", "out_of_memory", 1)
    assert Alert.objects.get(user=user, kind=AlertKind.FINDING).state == AlertState.OPEN
