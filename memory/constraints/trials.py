"""Trials of a constraint's current source on a state, which open no alerts."""

import datetime

from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.project.paths import constraint_path
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger
from memory.versions.past_states import KnownState, version_of


class NoSuchConstraint(Exception):
    """Neither the user nor the workspace has a live constraint with this name."""


def constraint_of(user: MemoryUser, name: str) -> tuple[str, str]:
    """Return the path and source hash of the constraint with this name.

    The user's own constraint takes precedence over a live workspace constraint, whose path is in
    the workspace constraints' directory. Raises NoSuchConstraint if neither exists.
    """
    path = constraint_path(name)
    if not name.isidentifier():  # PostgreSQL would reject some invalid names
        raise _no_constraint(name)
    if user.head is not None and name in dict(user.head.outline.get("constraints", ())):
        return path, user.head.tree[path]
    live = WorkspaceConstraint.objects.filter(
        workspace=user.workspace_id, name=name, live__isnull=False
    )
    row = defer_large(live, "live").first()
    if row is None or row.live is None:
        raise _no_constraint(name)
    return row.path, row.live.source_hash


def _no_constraint(name: str) -> NoSuchConstraint:
    return NoSuchConstraint(
        f"There is no constraint {name!r}, either among the user's own or among the live"
        " workspace constraints."
    )


def try_constraint(
    snapshot: KnownState, path: str, source_hash: str, instant: datetime.datetime
) -> Run:
    """Run a constraint's current version on the state `snapshot`, as of the given time.

    The run opens no alerts. Raises NoState if there is no version to run it on, and
    `LimitExceeded` if too many requested runs are already waiting.
    """
    return runs.queue(
        snapshot.user,
        RunKind.CONSTRAINT,
        RunTrigger.API,
        checkpoint=version_of(snapshot),
        instant=instant,
        input={"constraint": path, "source_hash": source_hash, "as_of": snapshot.to_json()},
    )
