"""The feed of events: what happened to alerts and which entries were rejected, per workspace.

Events are numbered 1, 2, 3 … without gaps.

A number is taken under the lock of the workspace's counter, which is held until the commit. So the
numbers become visible in their order: whoever has seen event n will see no other up to n any more,
and can go on reading after n. Only transactions that have something to tell take the counter.
"""

import datetime
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter

from django.contrib.postgres.fields import ArrayField
from django.db import connection
from django.db.models import BigIntegerField, Q, QuerySet, Value

from memory.delivery import webhooks
from memory.models import Alert, AlertEvent, Delivery, EventCounter, MemoryUser, Workspace
from memory.models.alerts import AlertEventKind
from memory.work import hints

# Events that one look at the feed takes.
PAGE = 500
_NUMBER = re.compile(r"[0-9]{1,18}")

TAKE = """
INSERT INTO memory_eventcounter (workspace_id, last_seq) VALUES (%s, %s)
ON CONFLICT (workspace_id)
DO UPDATE SET last_seq = memory_eventcounter.last_seq + excluded.last_seq
RETURNING last_seq
"""


def record(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Store these unsaved events of the user, in their order, and tell who listens.

    Call it in the transaction that changed the alerts or rejected the entries, once and as late as
    can be: it holds up the other users of the workspace until the commit. The user's row must be
    locked already, since that is the order of locks: user, then counter. All is undone with the
    transaction, numbers included.
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


def newest(workspace: Workspace | int) -> int:
    """Return the number of the workspace's newest event, 0 if there has been none."""
    numbers = EventCounter.objects.filter(workspace=workspace).values_list("last_seq", flat=True)
    return next(iter(numbers), 0)


def newest_of(workspaces: Collection[int]) -> dict[int, int]:
    """Return workspace → the number of its newest event, of those that have had any."""
    numbers = EventCounter.objects.filter(workspace__in=workspaces)
    return dict(numbers.values_list("workspace", "last_seq"))


def number(text: str, newest: int) -> int:
    """Return the number after which somebody wants to read; raises ValueError that says why not."""
    if text in ("", "now"):
        return newest
    found = int(text) if _NUMBER.fullmatch(text) else None
    if found is None or found > newest:
        raise ValueError(
            f"Give the `next` of an earlier answer, 0 or `now`: the newest event has the number"
            f" {newest}, not {text[:100]!r}."
        )
    return found


def read(
    workspace: Workspace | int,
    after: int,
    alerts: QuerySet[Alert],
    rejected: QuerySet[AlertEvent] | None = None,
    most: int | None = None,
) -> Page:
    """Return the events of these alerts after the number `after`: `most`, or PAGE, at most.

    With them come those of `rejected` entries; without it, none do. Of who was erased, only that
    his alerts are.
    """
    most = most or PAGE
    # First: what has a number up to here is visible by now, whatever comes meanwhile.
    upto = newest(workspace)
    found = AlertEvent.objects.filter(
        Q(alert__user__erased_at=None) | Q(kind=AlertEventKind.ERASED),
        workspace=workspace,
        seq__gt=after,
        seq__lte=upto,
        alert__in=alerts,
    )
    events = list(found.order_by("seq")[:most])
    if rejected is not None:
        # Not in one statement: no index finds the events of these alerts or those entries.
        last = events[-1].seq if len(events) == most else upto
        others = rejected.filter(
            workspace=workspace, seq__gt=after, seq__lte=last, user__erased_at=None
        )
        events = sorted([*events, *others.order_by("seq")[:most]], key=attrgetter("seq"))[:most]
    return Page(events, events[-1].seq if len(events) == most else max(after, upto))


def select_rejections(reach: Q) -> QuerySet[AlertEvent]:
    """Return the events of rejected entries that somebody may be told of, as `reach` says."""
    return AlertEvent.objects.filter(reach, user__isnull=False)


def redact(user: MemoryUser, seqs: Collection[int], since: datetime.datetime) -> None:
    """Take the words out of messages about rejected entries, if they name one of these entries, or
    came since then: reasons may quote these entries.

    The events have numbers alone. Call it when the outcomes were redacted, as late as can be.
    """
    events = AlertEvent.objects.filter(
        Q(entries__overlap=_array(seqs)) | Q(at__gte=since), user=user
    )
    deliveries = Delivery.objects.filter(event__in=events)
    webhooks.redact(user, deliveries.values_list("pk", flat=True))


def _array(numbers: Collection[int]) -> Value:
    """Return numbers as one parameter of a statement, which has 65,535 at most."""
    return Value(list(numbers), ArrayField(BigIntegerField()))
