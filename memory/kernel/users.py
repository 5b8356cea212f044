"""Creating, changing and finding users, and scheduling their daily constraint runs."""

import datetime
import zoneinfo
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from memory.kernel.admission import pauses, usage
from memory.kernel.database.statements import Parameter, Statement
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
    if a value is invalid, and `usage.Exceeded` if the workspace can't have any more users.
    """
    user = MemoryUser(
        workspace=workspace,
        user_id=user_id,
        time_zone=workspace.time_zone if time_zone is None else time_zone,
        metadata=metadata or {},
    )
    user.full_clean(validate_unique=False, validate_constraints=False)
    usage.check_users(workspace)
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
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
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


def with_head(users: QuerySet[MemoryUser]) -> QuerySet[MemoryUser]:
    """Load the users with their head checkpoints, but without the checkpoints' large columns."""
    return users.select_related("head").defer(*(f"head__{name}" for name in _LARGE))


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


def next_daily_run(user: MemoryUser, after: datetime.datetime) -> datetime.datetime:
    """Return the next time at which the user's daily hour begins, in the user's time zone."""
    return next_hour(user.time_zone, settings.UAC_DAILY_RUN_HOUR, after)


def next_hour(time_zone: str, hour: int, after: datetime.datetime) -> datetime.datetime:
    """Return the next time after `after` at which this hour begins in a time zone."""
    zone = zoneinfo.ZoneInfo(time_zone)
    day = after.astimezone(zone).date()
    while True:
        due = datetime.datetime.combine(day, datetime.time(hour=hour), tzinfo=zone)
        if due > after:
            return due.astimezone(datetime.UTC)
        day += datetime.timedelta(days=1)


def is_daily(user: MemoryUser, due: datetime.datetime, now: datetime.datetime) -> bool:
    """Return whether the user's daily hour begins between `due` and `now`, inclusive."""
    return next_daily_run(user, due - datetime.timedelta.resolution) <= now


def run_daily(user: MemoryUser) -> None:
    """Schedule the constraints to run no later than the next daily hour.

    A run scheduled for later is brought forward, because the forecast that postponed it may be out
    of date.
    """
    daily = next_daily_run(user, timezone.now())
    later = Q(constraints_due_at=None) | Q(constraints_due_at__gt=daily)
    if MemoryUser.objects.filter(later, pk=user.pk).update(constraints_due_at=daily):
        user.constraints_due_at = daily


def next_run(user: MemoryUser, instant: datetime.datetime, *, soon: bool) -> datetime.datetime:
    """Return when constraints that have run as of `instant` must run again because time has passed.

    They must run again at the next daily hour or, if `soon` is set because a constraint reads the
    current time, some minutes after `instant`. A run that is already due remains due. The caller
    must have locked the user's row.
    """
    now = timezone.now()
    due = user.constraints_due_at
    if due is not None and due <= now:
        return due
    if not soon:  # discard the wake-up time of an older version's forecast
        return next_daily_run(user, now)
    step = datetime.timedelta(minutes=settings.UAC_INSTANT_MINUTES)
    missed = max((now - instant) // step, 0)  # missed runs are not made up for
    following = instant + (missed + 1) * step
    return following if due is None else min(due, following)
