"""The feed of events: what happened to the alerts of a workspace, numbered 1, 2, 3 … without gaps.

A number is taken under the lock of the workspace's counter, which is held until the commit. So the
numbers become visible in their order: whoever has seen event n will see no other up to n any more,
and can go on reading after n. Only transactions that have something to tell take the counter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet

from memory import hints, webhooks
from memory.models import Alert, AlertEvent, EventCounter, MemoryUser, Workspace

# Events that one look at the feed takes.
PAGE = 500

TAKE = """
INSERT INTO memory_eventcounter (workspace_id, last_seq) VALUES (%s, %s)
ON CONFLICT (workspace_id)
DO UPDATE SET last_seq = memory_eventcounter.last_seq + excluded.last_seq
RETURNING last_seq
"""


def record(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Store these unsaved events of the user's alerts, in their order, and tell who listens.

    Call it in the transaction that changed the alerts, once and as late as can be: it holds up the
    other users of the workspace until the commit. The user's row must be locked already, since that
    is the order of locks: user, then counter. All is undone with the transaction, numbers included.
    """
    if not events:
        return
    with connection.cursor() as cursor:
        cursor.execute(TAKE, [user.workspace_id, len(events)])
        (last,) = cursor.fetchone()
    for seq, event in enumerate(events, last - len(events) + 1):
        event.workspace_id, event.seq = user.workspace_id, seq
    AlertEvent.objects.bulk_create(events)
    webhooks.queue(user, events)
    hints.signal_events(user.workspace_id)


@dataclass(frozen=True)
class Page:
    """Events after some number, in their order, and the number after which to read on."""

    events: Sequence[AlertEvent]
    next: int


def newest(workspace: Workspace) -> int:
    """Return the number of the workspace's newest event, 0 if there has been none."""
    numbers = EventCounter.objects.filter(workspace=workspace).values_list("last_seq", flat=True)
    return next(iter(numbers), 0)


def read(workspace: Workspace, after: int, alerts: QuerySet[Alert]) -> Page:
    """Return the events of these alerts that come after the number `after`, PAGE at most."""
    # First: what has a number up to here is visible by now, whatever comes meanwhile.
    upto = newest(workspace)
    found = AlertEvent.objects.filter(
        workspace=workspace, seq__gt=after, seq__lte=upto, alert__in=alerts
    )
    events = list(found.order_by("seq")[:PAGE])
    return Page(events, events[-1].seq if len(events) == PAGE else max(after, upto))
