"""Constraints run at least once a day: at the daily hour, in the user's time zone."""

import datetime
import zoneinfo

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from memory.kernel.models.users import MemoryUser


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
