"""Workspace constraints: written once, judged, approved, and run for all users they apply to.

Once written, a version never changes. A worker judges it
(`workers/gate/workspace_constraints.py`), and somebody with the permission to approve
versions approves it, which makes it live. It then runs for the constraint's rollout percentage of
users, provided that their projects have the classes and fields it needs
(`memory.constraints.applicability`). Any change to the set of constraints that run for a user
queues a run of that user's constraints.
"""

import datetime
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.constraints import backtest_reports, backtests
from memory.constraints.backtest_reports import Tested
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work.hints import hint
from memory.project import EditError
from memory.project.names import check_lower_name

MAX_SOURCE = 64 * 1024


class ConstraintExists(Exception):
    """The workspace already has a constraint with this name."""


class NotApprovable(Exception):
    """The version has not passed the checks, or has not been backtested."""


class BadConstraint(ValueError):
    """A constraint's name, source, tests or percentage is invalid; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def create(
    workspace: Workspace, name: str, *, source: str, tests: str, description: str = "", by: str
) -> WorkspaceConstraint:
    """Create a constraint with its first version, which a worker then judges.

    Raises ConstraintExists if the name is taken, and BadConstraint if the name, source or tests are
    invalid.
    """
    check_name(name)
    try:
        with transaction.atomic():
            constraint = WorkspaceConstraint.objects.create(
                workspace=workspace, name=name, description=description, created_by=by
            )
            propose(constraint, source=source, tests=tests, by=by)
    except IntegrityError as error:
        raise ConstraintExists(name) from error
    return constraint


def check_name(name: str) -> None:
    """Raise BadConstraint unless this is a valid name for a constraint."""
    try:
        check_lower_name(name, "constraint")
    except EditError as error:
        raise BadConstraint("name", str(error)) from None
    if len(name) > 100:
        raise BadConstraint("name", "A name must have at most 100 characters.")


def check_text(source: str, tests: str) -> None:
    """Raise BadConstraint if the source or the tests are empty or too long."""
    for field, text in (("source", source), ("tests", tests)):
        if not text.strip():
            raise BadConstraint(field, "This field must not be empty. Write Python code.")
        if len(text.encode()) > MAX_SOURCE:
            raise BadConstraint(
                field, f"This field must have at most {MAX_SOURCE} bytes. Shorten the code."
            )


def propose(
    constraint: WorkspaceConstraint, *, source: str, tests: str, by: str
) -> WorkspaceConstraintVersion:
    """Create the next version, which a worker then judges.

    If the newest version has the same source and tests, the newest version is returned instead.
    Raises BadConstraint if the source or the tests are empty or too long.
    """
    check_text(source, tests)
    with transaction.atomic():
        _lock(constraint)
        newest = constraint.versions.order_by("-number").first()
        if newest is not None and (newest.source, newest.tests) == (source, tests):
            return newest
        version = WorkspaceConstraintVersion.objects.create(
            constraint=constraint,
            number=newest.number + 1 if newest else 1,
            source=source,
            source_hash=sha256(source),
            tests=tests,
            created_by=by,
            hinted_at=timezone.now(),
        )
        backtests.supersede(constraint, version.number)
        hint("versions", str(version.pk), workspace_pk=constraint.workspace_id)
    return version


def approve(version: WorkspaceConstraintVersion, *, by: str) -> WorkspaceConstraint:
    """Make a version live if it passed its checks and was backtested, or was approved earlier.

    Raises NotApprovable if neither applies.
    """
    with transaction.atomic():
        constraint = _lock(version.constraint)
        now = timezone.now()
        version.refresh_from_db()
        if reason := why_not_approvable(version, backtest_reports.tested(version)):
            raise NotApprovable(reason)
        if version.state == VersionState.PASSED:
            version.state, version.approved_by, version.approved_at = VersionState.APPROVED, by, now
            version.save(update_fields=["state", "approved_by", "approved_at"])
        if constraint.live_id != version.pk:
            constraint.live = version
            _save(constraint, by, now, "live")
    return constraint


def why_not_approvable(version: WorkspaceConstraintVersion, tested: Tested) -> str:
    """Return why a version may not be approved, or "" if it may, or was approved earlier."""
    if version.state == VersionState.APPROVED:
        return ""
    if version.state == VersionState.PASSED:
        return "" if tested.enough else tested.detail
    return (
        f"Version {version.number} is {version.get_state_display()}. Only a version that"
        " passed all checks can be approved."
    )


def change(
    constraint: WorkspaceConstraint,
    *,
    by: str,
    percentage: int | None = None,
    enabled: bool | None = None,
    description: str | None = None,
) -> WorkspaceConstraint:
    """Update a constraint's settings; None leaves a setting unchanged.

    Raises BadConstraint if the percentage is invalid.
    """
    if percentage is not None and not 0 <= percentage <= 100:
        raise BadConstraint("percentage", "The percentage must be a whole number from 0 to 100.")
    given = {"percentage": percentage, "enabled": enabled, "description": description}
    with transaction.atomic():
        locked = _lock(constraint)
        changed = [
            name
            for name, value in given.items()
            if value is not None and value != getattr(locked, name)
        ]
        for name in changed:
            setattr(locked, name, given[name])
        if changed:
            _save(locked, by, timezone.now(), *changed)
    return locked


def _lock(constraint: WorkspaceConstraint) -> WorkspaceConstraint:
    return WorkspaceConstraint.objects.select_for_update(no_key=True).get(pk=constraint.pk)


def _save(constraint: WorkspaceConstraint, by: str, now: datetime.datetime, *changed: str) -> None:
    constraint.changed_at, constraint.changed_by = now, by
    constraint.save(update_fields=["changed_at", "changed_by", *changed])
    runs = constraint.live_id is not None and constraint.enabled and constraint.percentage
    if (runs and {*changed} - {"description"}) or {"enabled", "percentage"} & {*changed}:
        # Lock the workspace's row first, so that no concurrent change to workspace constraints can
        # lock the users' rows.
        Workspace.objects.select_for_update(no_key=True).get(pk=constraint.workspace_id)
        # Mark users even if they are already marked: the dispatcher may be removing the mark right
        # now without having seen this change. Also mark users without a project, because a worker
        # that has not seen this change may be committing such a user's first version right now.
        MemoryUser.objects.filter(workspace=constraint.workspace_id).update(
            constraints_changed_at=Coalesce("constraints_changed_at", Value(now))
        )


def store_bytecode(version_pk: UUID, bytecode: str, image_digest: str) -> None:
    """Store a version's bytecode, compiled by a sandbox image; an empty string deletes it."""
    WorkspaceConstraintVersion.objects.filter(pk=version_pk).update(
        bytecode=bytecode, image_digest=image_digest
    )


def unjudged() -> QuerySet[WorkspaceConstraintVersion]:
    """Select the versions that are waiting to be judged."""
    return WorkspaceConstraintVersion.objects.filter(state=VersionState.CHECKING)
