"""A constraint that takes the moment runs again after minutes, besides the daily run."""

from collections.abc import Callable

import pytest
import time_machine

from memory.alerts.models.alerts import Alert
from memory.constraints import constraint_library, workspace_constraints
from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import change_user, create_user
from memory.versions.models.runs import Run, RunTrigger
from tests.conftest import finish_work
from tests.integration.work.test_clock import MORNING, TOMORROW, minutes
from tests.steps import append_records, due
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]


def tell_appointments(user: MemoryUser) -> None:
    """Append two appointments of the next day that overlap."""
    entries = [
        {
            "domain": "calendar",
            "type": "Meeting",
            "key": f"meeting-{hour}",
            "data": {
                "title": f"Meeting at {hour}",
                "start": f"2026-03-03T{hour}:00:00+01:00",
                "end": f"2026-03-03T{hour + 2}:00:00+01:00",
            },
        }
        for hour in (10, 11)
    ]
    append_records(user, *entries)


def enable(workspace: Workspace, name: str) -> None:
    """Have a constraint of the library run for all users of the workspace."""
    of_library = constraint_library.read(name)
    constraint = workspace_constraints.create(
        workspace, name, source=of_library.source, tests=of_library.tests, by="test"
    )
    version = constraint.versions.get()
    tasks.work("versions", str(version.pk))
    tasks.work("backtests", str(version.backtests.get().pk))
    version.refresh_from_db()
    workspace_constraints.approve(version, by="boss")
    workspace_constraints.change(constraint, by="boss", percentage=100)


def triggers(user: MemoryUser) -> list[str]:
    return [run.trigger for run in Run.objects.filter(user=user).order_by("queued_at")]


def new_user(workspace: Workspace, user_id: str) -> MemoryUser:
    """Create a user of that time: one created later would not be due yet."""
    with time_machine.travel(MORNING - minutes(60)):
        return create_user(workspace, user_id, time_zone="Europe/Berlin", metadata=None)


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    """A user without entries, in a workspace without constraints."""
    return new_user(workspace, "ben")


@pytest.fixture(scope="module")
def looked_at(populate_module: Callable[[Callable[[], MemoryUser]], MemoryUser]) -> MemoryUser:
    """A user with meetings, whose constraint that takes the moment has run."""

    def make() -> MemoryUser:
        user = new_user(Workspace.objects.create(name="Company"), "ada")
        with time_machine.travel(MORNING, tick=False):
            enable(user.workspace, "double_booking")
            tell_appointments(user)
            finish_work()
        # The new constraint has already run: no further run is due for that.
        MemoryUser.objects.filter(pk=user.pk).update(constraints_changed_at=None)
        return user

    return populate_module(make)


@pytest.fixture
def busy(looked_at: MemoryUser) -> MemoryUser:
    """That user, at nine in the morning."""
    return MemoryUser.objects.get(pk=looked_at.pk)


def test_constraint_on_the_moment_runs_again_in_minutes(busy: MemoryUser, work: Work) -> None:
    assert Alert.objects.get(user=busy).severity == "warning"
    assert due(busy) == MORNING + minutes(5)

    with time_machine.travel(MORNING + minutes(5), tick=False):
        assert dispatching.dispatch()["daily"] == 1
        assert due(busy) == TOMORROW  # nothing is queued twice while it waits
        assert dispatching.dispatch()["daily"] == 0
        work()
    assert due(busy) == MORNING + minutes(10)
    assert triggers(busy)[-1] == RunTrigger.INSTANT


def test_after_a_long_silence_it_is_not_caught_up_with(busy: MemoryUser, work: Work) -> None:
    with time_machine.travel(MORNING + minutes(5), tick=False):
        dispatching.dispatch()
    with time_machine.travel(MORNING + minutes(33), tick=False):  # workers were busy
        work()
    assert due(busy) == MORNING + minutes(35)


def test_late_look_at_the_daily_hour_is_the_daily_run(busy: MemoryUser, work: Work) -> None:
    MemoryUser.objects.filter(pk=busy.pk).update(constraints_due_at=TOMORROW - minutes(1))
    with time_machine.travel(TOMORROW + minutes(2), tick=False):
        dispatching.dispatch()
        work()
    assert triggers(busy)[-1] == RunTrigger.DAILY
    assert due(busy) == TOMORROW + minutes(7)


def test_clock_runs_only_while_constraints_apply(user: MemoryUser, work: Work) -> None:
    with time_machine.travel(MORNING, tick=False):
        tell_appointments(user)
        work()
    with time_machine.travel(TOMORROW, tick=False):
        dispatching.dispatch()
    assert due(user) is None
    assert triggers(user) == []

    with time_machine.travel(TOMORROW + minutes(1), tick=False):
        enable(user.workspace, "deadline_window")  # which does not concern the user
        dispatching.dispatch()
        assert due(user) is None
        enable(user.workspace, "double_booking")
        dispatching.dispatch()
        # This holds whatever happens to that run.
        assert due(user) == next_daily_run(user, TOMORROW)
        work()
    assert due(user) == TOMORROW + minutes(6)
    assert triggers(user) == [RunTrigger.WORKSPACE]


def test_without_such_a_constraint_it_is_daily_again(busy: MemoryUser, work: Work) -> None:
    constraint = busy.workspace.constraints.get()
    with time_machine.travel(MORNING + minutes(1), tick=False):
        workspace_constraints.change(constraint, by="boss", percentage=0)
        dispatching.dispatch()
        work()
    assert due(busy) == TOMORROW


def test_a_new_time_zone_moves_the_daily_run_and_leaves_the_minutes(busy: MemoryUser) -> None:
    with time_machine.travel(MORNING + minutes(1), tick=False):
        change_user(busy, time_zone="Asia/Tokyo")
    assert due(busy) == MORNING + minutes(5)
