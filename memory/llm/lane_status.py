"""Whether the language model works on a user's entries and, if not, why."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from django.db import models
from django.db.models import Count, Q
from django.utils import timezone

from memory.kernel import pauses
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases
from memory.llm import llm_budgets, track_records


class LaneState(models.TextChoices):
    """The state of language model work for a user."""

    IDLE = "idle", "idle"
    WAITING = "waiting", "waiting"
    DUE = "due", "due"
    WORKING = "working", "working"
    STOPPED = "stopped", "stopped"


@dataclass(frozen=True)
class LaneStatus:
    """The status of language model work for a user.

    `waiting` is the number of waiting entries, `until` is when work will begin or be retried, if
    known, and `reason` says why it hasn't begun.
    """

    state: LaneState
    waiting: int
    until: datetime.datetime | None = None
    reason: str = ""


def read_status(
    user: MemoryUser,
    lane: Lane | None = None,
    pause_of: Callable[[MemoryUser], Pause | None] = pauses.find_pause,
) -> LaneStatus:
    """Return the status of language model work for a user, to show to staff.

    If `lane` is not given, it is looked up. `pause_of` returns the pause that applies to a user, if
    any.
    """
    lane = lane or Lane.objects.get(user=user, name=LaneName.STRUCTURE)
    now = timezone.now()
    if lane.lease_expires_at is not None and lane.lease_expires_at > now:
        return LaneStatus(LaneState.WORKING, lane.waiting)
    if lane.due_at is None:
        return LaneStatus(LaneState.IDLE, lane.waiting)
    if pause := pause_of(user):
        why = f": {pause.reason}" if pause.reason else ""
        return LaneStatus(
            LaneState.STOPPED, lane.waiting, None, f"paused by {pause.paused_by}{why}"
        )
    if reason := llm_budgets.why_stopped(user.workspace):
        return LaneStatus(LaneState.STOPPED, lane.waiting, None, reason)
    if reason := track_records.why_stopped(user.workspace):
        return LaneStatus(LaneState.STOPPED, lane.waiting, None, reason)
    if lane.run_after > now and lane.last_error:
        return LaneStatus(LaneState.STOPPED, lane.waiting, lane.run_after, lane.last_error)
    if lane.due_at > now:
        return LaneStatus(LaneState.WAITING, lane.waiting, lane.due_at)
    return LaneStatus(LaneState.DUE, lane.waiting, None, _why_not_begun(user, lane, now))


def _why_not_begun(user: MemoryUser, lane: Lane, now: datetime.datetime) -> str:
    """Describe how many of the workspace's users are ahead, and how many are being processed."""
    others = Lane.objects.filter(
        name=LaneName.STRUCTURE, user__workspace=user.workspace_id, due_at__isnull=False
    ).exclude(pk=lane.pk)
    before = Q(run_after__lt=lane.run_after) | Q(run_after=lane.run_after, pk__lt=lane.pk)
    counts = others.aggregate(
        working=Count("pk", filter=Q(lease_expires_at__gt=now)),
        ahead=Count("pk", filter=leases.free(now) & Q(due_at__lte=now) & before),
    )
    if not any(counts.values()):
        return ""
    users = "user is" if counts["working"] == 1 else "users are"
    return (
        f"waiting for its turn: {counts['ahead']} ahead in the queue, {counts['working']} {users}"
        " being processed"
    )
