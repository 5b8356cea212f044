"""Creating, changing and finding users, and scheduling their daily constraint runs."""

from typing import Any

from django.apps import apps
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from memory.kernel import pauses
from memory.kernel.admission import quotas
from memory.kernel.daily_runs import is_daily, next_daily_run
from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import Lane, LaneName, MemoryUser, is_user_id
from memory.kernel.models.workspaces import Workspace
from memory.kernel.refused import Refused


def _of_id() -> QuerySet[MemoryUser]:
    chosen = {name: Parameter(name) for name in ("workspace", "user_id")}
    return MemoryUser.objects.filter(**chosen).order_by()


# Large columns of a user's head checkpoint that are rarely needed.
_LARGE = ("edits", "verdict")

# Three ways to read a user: without the head checkpoint, with the head checkpoint's small columns,
# and with only the columns needed to run a query, because we run many queries per second.
WITHOUT_HEAD = Statement(_of_id)
WITH_HEAD = Statement(
    _of_id,
    "*",
    *(
        f"head__{field.attname}"
        for field in apps.get_model("memory", "Checkpoint")._meta.concrete_fields
        if field.name not in _LARGE
    ),
)
ASKED = Statement(
    _of_id,
    *("user_id", "workspace_id", "last_seq", "time_zone", "redacting_since", "merged_into_id"),
    "head__version",
)


class UserExists(Exception):
    """The workspace already has a user with this `user_id`."""


def is_erased(error: Exception) -> bool:
    """Return whether an error occurred because a user was erased in the meantime.

    In that case, the user is not found, or the database rejects a new row that refers to them.
    """
    refused = getattr(error.__cause__, "sqlstate", "") == "UE001"
    return refused or isinstance(error, MemoryUser.DoesNotExist)


class UserMerged(Refused):
    """The user was merged into another user, who gets new entries instead."""

    problem = "user-merged"

    def __init__(self, user: MemoryUser) -> None:
        super().__init__(f"{user} was merged into {final(user)}: use that user instead.")


def final(user: MemoryUser) -> MemoryUser:
    """Return the user at the end of a chain of merges."""
    while user.merged_into is not None:
        user = user.merged_into
    return user


def refuse_merged(user: MemoryUser) -> None:
    """Raise UserMerged if the user was merged into another user."""
    if user.merged_into_id is not None:
        raise UserMerged(user)


def create_user(
    workspace: Workspace,
    user_id: str,
    *,
    time_zone: str | None = None,
    metadata: dict[str, Any] | None,
) -> MemoryUser:
    """Create a user with an empty log and no project.

    The time zone defaults to the workspace's. Raises UserExists if the id is taken, ValidationError
    if a value is invalid, and `LimitExceeded` if the workspace can't have any more users.
    """
    user = MemoryUser(
        workspace=workspace,
        user_id=user_id,
        time_zone=workspace.time_zone if time_zone is None else time_zone,
        metadata=metadata or {},
    )
    user.full_clean(validate_unique=False, validate_constraints=False)
    quotas.check_users(workspace)
    try:
        with transaction.atomic():
            user.save()
            Lane.objects.bulk_create(Lane(user=user, name=name) for name in LaneName)
    except IntegrityError as error:
        raise UserExists(user_id) from error
    return user


def change_user(
    user: MemoryUser, *, time_zone: str | None = None, metadata: dict[str, Any] | None = None
) -> None:
    """Change the given fields. A new time zone also moves the daily constraint run."""
    with transaction.atomic():
        # Lock the row, because the first checkpoint may be scheduling the daily run right now.
        locked = MemoryUser.objects.locked(user.pk)
        if metadata is not None:
            locked.metadata = user.metadata = metadata
        if time_zone is not None:
            due = locked.constraints_due_at
            was_daily = due is not None and is_daily(locked, due, due)
            locked.time_zone = user.time_zone = time_zone
            if due is not None:
                daily = next_daily_run(locked, timezone.now())
                locked.constraints_due_at = daily if was_daily else min(due, daily)
        user.constraints_due_at = locked.constraints_due_at
        locked.save(update_fields=["metadata", "time_zone", "constraints_due_at"])


def find_user(
    workspace: Workspace, user_id: str, read: Statement[MemoryUser] = WITHOUT_HEAD
) -> MemoryUser | None:
    """Return the workspace's user with this id, or None; `read` selects the columns."""
    if not is_user_id(user_id):
        return None
    return read.first(workspace=workspace.pk, user_id=user_id)


def find_or_create_user(workspace: Workspace, user_id: str) -> MemoryUser:
    """Return the user with this id, creating one if necessary; raises what `create_user` raises."""
    if user := find_user(workspace, user_id):
        return user
    try:
        return create_user(workspace, user_id, metadata=None)
    except UserExists:  # created by a concurrent request
        return MemoryUser.objects.get(workspace=workspace, user_id=user_id)


def select_head(users: QuerySet[MemoryUser]) -> QuerySet[MemoryUser]:
    """Load the users with their head checkpoints, but without their edits and verdicts."""
    return defer_large(users, "head", keep=["metadata", "head__tree", "head__outline"])


def undisturbed() -> Q:
    """Match rows whose `user` has a stable project.

    This excludes merged users and those with a redaction in progress, because the redaction has
    priority.
    """
    held = Q(redacting_since__isnull=False) | Q(merged_into__isnull=False)
    return Q(~Exists(MemoryUser.objects.filter(held, pk=OuterRef("user_id"))))


def unpaused() -> Q:
    """Match rows whose `user` is not paused."""
    users = MemoryUser.objects.filter(pauses.are_paused("pk", "workspace"))
    return Q(~Exists(users.filter(pk=OuterRef("user_id"))))


def workable() -> Q:
    """Match rows whose `user` has a project that may be worked on."""
    return undisturbed() & unpaused()
