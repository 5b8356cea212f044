"""The audit of the staff: their actions, and the users whose content they viewed.

A row holds keys, numbers and names of actions, but neither content nor a person's name: it stays
when the person is erased. The database refuses to change it.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from memory.models import StaffAudit
from memory.models.staff import AuditKind
from memory.staff.access import PLACES, Staff

# Maximum number of rows that are read to find out to whom they belong.
_FEW = 200


@dataclass(frozen=True)
class Subject:
    """The subject of an action: model, number of rows, and the owner that they share, if any."""

    model: str = ""
    row: str = ""
    number: int = 0
    person: UUID | None = None
    workspace: int | None = None


def tells_of_people(model: type[Model]) -> bool:
    """Return whether this model's rows are about people. Raises KeyError if not in PLACES."""
    return PLACES[model].person is not None


def subject_of(rows: QuerySet[Any]) -> Subject:
    """Describe rows: the key of a single row, and the user or workspace they all share, if any."""
    place, pk = PLACES[rows.model], rows.model._meta.pk.name
    whose = [place.public_id or pk, place.workspace or pk]
    rows = rows.order_by()
    first = list(rows.values_list("pk", *whose)[: _FEW + 1])
    number, owners = len(first), {(person, workspace) for _, person, workspace in first}
    if number > _FEW:
        number, owners = rows.count(), set(rows.values_list(*whose).distinct()[: _FEW + 1])
    people = {person for person, _ in owners} if place.public_id else set()
    workspaces = {workspace for _, workspace in owners} if place.workspace else set()
    is_known = len(owners) <= _FEW
    return Subject(
        model=str(rows.model._meta.model_name),
        row=str(first[0][0]) if number == 1 else "",
        number=number,
        person=people.pop() if is_known and len(people) == 1 else None,
        workspace=workspaces.pop() if is_known and len(workspaces) == 1 else None,
    )


def note(staff: Staff, kind: AuditKind, subject: Subject, what: str = "") -> None:
    """Record an action. If this raises, the action must not be carried out."""
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


def logged_in(*, user: User, **_: Any) -> None:
    """Record a login."""
    note(user, AuditKind.LOGIN, Subject())


def logged_out(*, user: User | None, **_: Any) -> None:
    """Record a logout."""
    if user is not None:
        note(user, AuditKind.LOGOUT, Subject())
