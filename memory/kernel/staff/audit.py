"""The staff audit, which records what staff did and whose content they viewed.

Rows contain keys, counts and names of actions, but neither content nor users' names, so they can be
kept when a user is erased. The database refuses to change rows.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from memory.kernel.models.privacy import owner_paths, workspace_path
from memory.kernel.staff import recent_sign_in
from memory.kernel.staff.access import Staff, owner_id_of
from memory.kernel.staff.models import AuditKind, StaffAudit

# Maximum number of rows, or of distinct owners, to read to find out whether all rows belong to the
# same user or workspace.
_FEW = 200


@dataclass(frozen=True)
class Subject:
    """The rows an action affects: their model, their number, and their common owner, if any."""

    model: str = ""
    row: str = ""
    number: int = 0
    person: UUID | None = None
    workspace: int | None = None


def tells_of_people(model: type[Model]) -> bool:
    """Return whether a model's rows are about users."""
    return bool(owner_paths(model))


def subject_of(rows: QuerySet[Any]) -> Subject:
    """Describe rows: the key of a single row, and the user or workspace that all rows share."""
    model: type[Model] = rows.model
    owner, workspace = owner_id_of(model), workspace_path(model)
    columns = [owner or "pk", workspace or "pk"]
    rows = rows.order_by()
    first = list(rows.values_list("pk", *columns)[: _FEW + 1])
    number, owners = len(first), {tuple(pair) for _, *pair in first}
    if number > _FEW:
        number, owners = rows.count(), set(rows.values_list(*columns).distinct()[: _FEW + 1])
    people = {person for person, _ in owners} if owner else set()
    workspaces = {pk for _, pk in owners} if workspace else set()
    is_known = len(owners) <= _FEW
    return Subject(
        model=str(rows.model._meta.model_name),
        row=str(first[0][0]) if number == 1 else "",
        number=number,
        person=people.pop() if is_known and len(people) == 1 else None,
        workspace=workspaces.pop() if is_known and len(workspaces) == 1 else None,
    )


def note(staff: Staff, kind: AuditKind, subject: Subject, what: str = "") -> None:
    """Record a staff member's action. If this raises an error, the action must not be performed."""
    StaffAudit.objects.create(
        staff_id=int(str(staff.pk)),
        staff_name=staff.get_username(),
        kind=kind,
        what=what[:100],
        model=subject.model,
        row=subject.row[:100],
        number=subject.number,
        person=subject.person,
        workspace_id=subject.workspace,
        request_id=str(structlog.contextvars.get_contextvars().get("request_id", "")),
    )


def logged_in(*, request: HttpRequest, user: User, **_: Any) -> None:
    """Record that a staff member logged in, and how."""
    note(user, AuditKind.LOGIN, Subject(), recent_sign_in.methods_of(request, user))


def logged_out(*, user: User | None, **_: Any) -> None:
    """Record that a staff member logged out."""
    if user is not None:
        note(user, AuditKind.LOGOUT, Subject())
