"""A constraint run that fails because of the machine is retried; it resolves nothing."""

from unittest.mock import create_autospec

import pytest

from memory.alerts.models.alerts import Alert, AlertKind, AlertState, PausedConstraint
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.project import Outline
from memory.versions.models.runs import Run, RunOutcome, RunStatus
from tests.factories import make_checkpoint, make_run, store_files
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.steps import attempt
from workers.execution import constraints
from workers.execution.loading import loaded
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(user: MemoryUser) -> Run:
    """A run of a version with a constraint, which has an open alert."""
    version = make_checkpoint(user, outline=Outline().with_constraint("allergy", "").to_json())
    run_finds(user, finding(record("m-1", 1)))
    return make_run(version)


def test_a_sandbox_that_breaks_is_tried_again_and_the_staff_know(
    user: MemoryUser, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SandboxError("killed", "the sandbox was killed", infrastructure=True)
    monkeypatch.setattr(constraints, "loaded", create_autospec(loaded, side_effect=broken))

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
    failed.refresh_from_db()
    assert (run.status, run.outcome) == (RunStatus.DONE, RunOutcome.OK)
    assert failed.state == AlertState.RESOLVED


def test_a_project_that_does_not_load_resolves_nothing_and_is_not_tried_again(
    user: MemoryUser, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SandboxError("out_of_memory", "needs more than 1 GiB")
    monkeypatch.setattr(constraints, "loaded", create_autospec(loaded, side_effect=broken))

    attempt(run)

    assert (run.status, run.outcome, run.attempts) == ("done", "out_of_memory", 1)
    assert Alert.objects.get(user=user, kind=AlertKind.FINDING).state == AlertState.OPEN


FLOOD = """\
from collections.abc import Iterator
from uac import Alert, info

def check() -> Iterator[Alert]:
    number = 0
    while True:
        yield info(f"alert {number}", key=str(number))
        number += 1
"""
QUIET = """\
from collections.abc import Iterator
from uac import Alert, warning

def check() -> Iterator[Alert]:
    yield warning("one", key="one")
"""


def test_endless_constraint_is_paused_and_others_fire(
    user: MemoryUser,
) -> None:
    sources = {"constraints/flood.py": FLOOD, "constraints/quiet.py": QUIET}
    outline = Outline().with_constraint("flood", "").with_constraint("quiet", "").to_json()
    version = make_checkpoint(user, outline=outline, tree=store_files(user, sources))
    user.workspace.alerts_per_constraint = 7
    user.workspace.wall_seconds = user.workspace.cpu_seconds = user.workspace.total_seconds = 60
    user.workspace.save()
    run = make_run(version)

    attempt(run)

    # It is stopped by the number of alerts, not by the time.
    assert (run.status, run.outcome) == (RunStatus.DONE, RunOutcome.ALERT_LIMIT)
    told = {alert.kind: alert for alert in Alert.objects.filter(user=user)}
    assert sorted(told) == [AlertKind.CONSTRAINT_PAUSED, AlertKind.FINDING]
    assert told[AlertKind.FINDING].message == "one"
    assert "more than 7 alerts at once" in told[AlertKind.CONSTRAINT_PAUSED].message
    assert "info: alert 0; info: alert 1; info: alert 2" in told["constraint_paused"].message
    paused = PausedConstraint.objects.get()
    assert (paused.constraint, paused.source_hash) == ("constraints/flood.py", sha256(FLOOD))
