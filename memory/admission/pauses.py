"""Pauses: the staff have the work on a user, or on a whole workspace, stand still for a while.

What is sent is taken, and waits; what is known can be read. Nothing is checked, answered by a
sandbox or a language model, foreseen or backtested until somebody resumes it; what a worker is at
when the pause begins is finished, with what it asks of others. Redaction, erasure and merging go
on: they were asked for by somebody who has a right to them, and so do webhooks and mails of what
has happened.
"""

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from memory.models import MemoryUser, Pause, Workspace


def pause(of: MemoryUser | Workspace, *, by: str, reason: str) -> bool:
    """Have nothing be worked on; `by` says who wants it. Returns False if it was so already."""
    try:
        with transaction.atomic():
            Pause.objects.create(**_of(of), paused_at=timezone.now(), paused_by=by, reason=reason)
    except IntegrityError:
        if is_paused(of):  # and not, for one, because the user was erased meanwhile
            return False
        raise
    return True


def resume(of: MemoryUser | Workspace, *, by: str) -> bool:
    """Have it worked on again: the dispatcher gives out what waits. False if it was not paused."""
    return bool(
        Pause.objects.filter(resumed_at=None, **_of(of)).update(
            resumed_at=timezone.now(), resumed_by=by
        )
    )


def is_paused(of: MemoryUser | Workspace) -> Pause | None:
    """Return the pause of a user himself, or of a whole workspace, if there is one."""
    return Pause.objects.filter(resumed_at=None, **_of(of)).first()


def of_user(user: MemoryUser) -> Pause | None:
    """Return why nothing is worked on of a user: his own pause, else his workspace's."""
    either = Q(user=user) | Q(workspace=user.workspace_id, user=None)
    found = Pause.objects.filter(either, resumed_at=None)
    return found.order_by(F("user").asc(nulls_last=True)).first()


def are_paused(user: str, workspace: str) -> Q:
    """Match rows whose user or workspace is paused; the arguments lead there, as `pk` of users."""
    still = Pause.objects.filter(resumed_at=None)
    return Q(Exists(still.filter(user=OuterRef(user)))) | Q(
        Exists(still.filter(workspace=OuterRef(workspace), user=None))
    )


def _of(of: MemoryUser | Workspace) -> dict[str, int | None]:
    if isinstance(of, MemoryUser):
        return {"user_id": of.pk, "workspace_id": of.workspace_id}
    return {"user_id": None, "workspace_id": of.pk}
