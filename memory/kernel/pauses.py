"""Pauses: staff can suspend work for a user or for a whole workspace.

New entries are still accepted, but wait to be processed; existing data can still be read. Until
someone resumes work, constraints aren't run, forecast or backtested, and neither a sandbox nor a
language model answers questions. Work already in progress when the pause begins is completed,
including any runs it requests. Redaction, erasure and merging continue, since people are entitled
to them; so do webhooks and emails about past events.
"""

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace


def pause(scope: MemoryUser | Workspace, *, by: str, reason: str) -> bool:
    """Pause a user or workspace on behalf of the actor `by`; return False if already paused."""
    try:
        with transaction.atomic():
            Pause.objects.create(
                **_columns_of(scope), paused_at=timezone.now(), paused_by=by, reason=reason
            )
    except IntegrityError:
        if is_paused(scope):  # the error came from an existing pause, not from a concurrent erasure
            return False
        raise
    return True


def resume(scope: MemoryUser | Workspace, *, by: str) -> bool:
    """Resume work, which the dispatcher then hands out; return False if there was no pause."""
    return bool(
        Pause.objects.filter(resumed_at=None, **_columns_of(scope)).update(
            resumed_at=timezone.now(), resumed_by=by
        )
    )


def is_paused(scope: MemoryUser | Workspace) -> Pause | None:
    """Return the current pause of this user or this workspace itself, or None if there is none."""
    return Pause.objects.filter(resumed_at=None, **_columns_of(scope)).first()


def find_pause(user: MemoryUser) -> Pause | None:
    """Return the pause that applies to a user: the user's own, else the workspace's, else None."""
    either = Q(user=user) | Q(workspace=user.workspace_id, user=None)
    pauses = Pause.objects.filter(either, resumed_at=None)
    return pauses.order_by(F("user").asc(nulls_last=True)).first()


def are_paused(user: str, workspace: str) -> Q:
    """Match rows whose user or workspace is paused; the arguments are lookup paths to them."""
    still = Pause.objects.filter(resumed_at=None)
    return Q(Exists(still.filter(user=OuterRef(user)))) | Q(
        Exists(still.filter(workspace=OuterRef(workspace), user=None))
    )


def _columns_of(scope: MemoryUser | Workspace) -> dict[str, int | None]:
    if isinstance(scope, MemoryUser):
        return {"user_id": scope.pk, "workspace_id": scope.workspace_id}
    return {"user_id": None, "workspace_id": scope.pk}
