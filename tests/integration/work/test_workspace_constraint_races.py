"""Rivals over workspace constraints: no number twice, no deadlock, and the last change wins."""

from collections.abc import Callable
from typing import Any

from memory.constraints.models.workspace_constraints import VersionState
from memory.constraints.workspace_constraints import approve, change, create, propose
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from tests.factories import make_checkpoint
from tests.integration.work.test_workspace_constraints import (
    SOURCE,
    TESTS,
    made,
)
from tests.rivals import run_at_once
from tests.steps import append_texts
from workers.service import dispatching


def test_concurrent_versions_are_numbered_gapless(live_database: str, workspace: Workspace) -> None:
    constraint = made(workspace)

    def write(writer: int) -> Callable[[], object]:
        return lambda: [
            propose(constraint, source=f"{SOURCE}# {writer}/{n}\n", tests=TESTS, by="x")
            for n in range(5)
        ]

    run_at_once(*map(write, range(6)))

    numbers = sorted(constraint.versions.values_list("number", flat=True))
    assert numbers == list(range(1, 32))


def test_concurrent_changes_do_not_deadlock(live_database: str, workspace: Workspace) -> None:
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
