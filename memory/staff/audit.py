"""The audit of the staff: what each of them did, and whose content they looked at.

A row holds keys, numbers and names of actions, and nothing that a person said or is called: it
stays when the person is erased. The database refuses to change it.
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

# So many rows, of so many users, are looked at to find out whose they are.
_FEW = 200


@dataclass(frozen=True)
class Subject:
    """What was acted on or looked at: how many rows of which model, and whose they are."""

    model: str = ""
    row: str = ""
    number: int = 0
    person: UUID | None = None
    workspace: int | None = None


def tells_of_people(model: type[Model]) -> bool:
    """Whether rows of this model belong to people. Raises KeyError for one of no known place."""
    return PLACES[model].person is not None


def subject_of(rows: QuerySet[Any]) -> Subject:
    """Say which rows these are: the row if it is one, the user and workspace if all are of one."""
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
    """Write what somebody did. It raises if it cannot: then it is not to be done."""
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
    """Note that somebody logged in."""
    note(user, AuditKind.LOGIN, Subject())


def logged_out(*, user: User | None, **_: Any) -> None:
    """Note that somebody logged out."""
    if user is not None:
        note(user, AuditKind.LOGOUT, Subject())
