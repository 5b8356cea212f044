"""The people remembered."""

import datetime
import zoneinfo
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from memory.models import Lane, MemoryUser, Workspace
from memory.models.users import LaneName


class UserExists(Exception):
    """The workspace already has a user with this `user_id`."""


def create_user(
    workspace: Workspace, user_id: str, *, time_zone: str = "UTC", metadata: dict[str, Any] | None
) -> MemoryUser:
    """Create a user with an empty log and no project; raises UserExists, or ValidationError."""
    user = MemoryUser(
        workspace=workspace, user_id=user_id, time_zone=time_zone, metadata=metadata or {}
    )
    user.full_clean(validate_unique=False, validate_constraints=False)
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
    """Change what is given. The daily run of the constraints follows the time zone."""
    with transaction.atomic():
        # The first checkpoint may set the daily run at this very moment.
        locked = MemoryUser.objects.select_for_update(no_key=True).get(pk=user.pk)
        if metadata is not None:
            locked.metadata = user.metadata = metadata
        if time_zone is not None:
            locked.time_zone = user.time_zone = time_zone
            if locked.constraints_due_at is not None:
                locked.constraints_due_at = next_daily_run(locked, timezone.now())
        user.constraints_due_at = locked.constraints_due_at
        locked.save(update_fields=["metadata", "time_zone", "constraints_due_at"])


def with_head(users: QuerySet[MemoryUser]) -> QuerySet[MemoryUser]:
    """Join the heads, without what is large in them and seldom asked for."""
    return users.select_related("head").defer("head__edits", "head__verdict")


def next_daily_run(user: MemoryUser, after: datetime.datetime) -> datetime.datetime:
    """Return the next instant at which the daily hour strikes where the user lives."""
    zone = zoneinfo.ZoneInfo(user.time_zone)
    day = after.astimezone(zone).date()
    while True:
        due = datetime.datetime.combine(
            day, datetime.time(hour=settings.UAC_DAILY_RUN_HOUR), tzinfo=zone
        )
        if due > after:
            return due.astimezone(datetime.UTC)
        day += datetime.timedelta(days=1)
