"""Rivals over workspace constraints: no number twice, no deadlock, and the last change wins."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from memory.alerts.models.alerts import Alert, AlertState
from memory.constraints.models.workspace_constraints import VersionState
from memory.constraints.workspace_constraints import approve, change, create, propose
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.versions import runs
from tests.factories import make_checkpoint
from tests.integration.work.test_workspace_constraints import (
    SOURCE,
    TESTS,
    alerts_of,
    live,
    made,
    rental,
    tell,
)
from tests.rivals import Rival, run_at_once, somebody_waits
from tests.steps import append_texts
from tests.waiting import eventually
from workers.service import dispatching

Work = Callable[[], None]


def test_versions_that_are_written_at_once_are_numbered_without_gap(
    live_database: str, workspace: Workspace
) -> None:
    constraint = made(workspace)

    def write(writer: int) -> Callable[[], object]:
        return lambda: [
            propose(constraint, source=f"{SOURCE}# {writer}/{n}\n", tests=TESTS, by="x")
            for n in range(5)
        ]

    run_at_once(*map(write, range(6)))

    numbers = sorted(constraint.versions.values_list("number", flat=True))
    assert numbers == list(range(1, 32))


def test_changes_of_several_constraints_beside_appends_do_not_deadlock(
    live_database: str, workspace: Workspace
) -> None:
    # Given users with a project, and constraints that are live
    users = [create_user(workspace, f"u{number}", metadata=None) for number in range(40)]
    for user in users:
        MemoryUser.objects.filter(pk=user.pk).update(head=make_checkpoint(user))
    rules = []
    for name in ("one", "two", "three"):
        rule = create(workspace, name, source=SOURCE, tests=TESTS, by="x")
        rule.versions.update(state=VersionState.PASSED)
        rule.versions.update(state=VersionState.APPROVED)
        approve(rule.versions.get(), by="x")
        rules.append(rule)

    # When all are switched to and fro while users are written to and the dispatcher looks
    def switch(rule: Any) -> Callable[[], object]:
        return lambda: [change(rule, by="x", percentage=number * 10) for number in range(1, 9)]

    def append() -> None:
        for user in reversed(users):
            append_texts(user, "x", role="user")

    def dispatch() -> None:
        for _ in range(5):
            dispatching.queue_runs_of_changed_constraints()

    run_at_once(*map(switch, rules), append, append, dispatch)

    # Then none was refused, and the last word of each stands
    for rule in rules:
        rule.refresh_from_db()
        assert rule.percentage == 80


@pytest.mark.django_db
def test_a_run_that_began_before_a_change_does_not_have_the_last_word(
    workspace: Workspace, user: MemoryUser, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint = live(workspace)
    tell(user, rental())
    real = runs.finish

    def finish_late(*arguments: Any) -> None:
        # While the results of a run are written, the constraint is disabled.
        monkeypatch.setattr(runs, "finish", real)
        change(constraint, by="x", enabled=False)
        real(*arguments)

    monkeypatch.setattr(runs, "finish", finish_late)
    work()
    assert len(alerts_of(user)) == 1

    dispatching.dispatch()
    work()

    assert Alert.objects.get(user=user).state == AlertState.RESOLVED


def test_a_first_version_that_is_written_beside_a_change_is_looked_at_again(
    live_database: str, workspace: Workspace
) -> None:
    # Given a user whose first version is being written
    constraint = live(workspace)
    user = create_user(workspace, "new", metadata=None)
    MemoryUser.objects.update(constraints_changed_at=None)
    with transaction.atomic():
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)

        # When a constraint is changed meanwhile
        changing = Rival(lambda: change(constraint, by="x", percentage=50))
        changing.start()
        assert eventually(lambda: not changing.is_alive() or somebody_waits())
        locked.head = make_checkpoint(locked)
        locked.save(update_fields=["head"])
    changing.join()
    assert changing.error is None

    # Then neither misses the other
    assert dispatching.queue_runs_of_changed_constraints() == 1
