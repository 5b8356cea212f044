"""A workspace's feed of events: changes to alerts, and rejected entries.

Events are numbered 1, 2, 3 … without gaps.

A number is taken under the lock of the workspace's counter, which is held until the commit. So the
numbers become visible in order: whoever has seen event n has missed none up to n, and can continue
reading after n. Only transactions with events lock the counter.
"""

import datetime
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter

from django.contrib.postgres.fields import ArrayField
from django.db import connection
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from memory.delivery import outbox
from memory.models import (
    Alert,
    AlertEvent,
    Delivery,
    EventCounter,
    MemoryUser,
    Workspace,
)
from memory.models.alerts import (
    LIVE_STATES,
    AlertEventKind,
    AlertState,
)
from memory.work import hints

# The maximum number of events that one read of the feed returns.
PAGE = 500
_NUMBER = re.compile(r"[0-9]{1,18}")

TAKE = """
INSERT INTO memory_eventcounter (workspace_id, last_seq) VALUES (%s, %s)
ON CONFLICT (workspace_id)
DO UPDATE SET last_seq = memory_eventcounter.last_seq + excluded.last_seq
RETURNING last_seq
"""


def record(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Store these unsaved events of the user, in order, and wake listeners.

    Call it in the transaction that changed the alerts or rejected the entries, once and as late as
    possible: it blocks the other users of the workspace until the commit. The user's row must be
    locked already, since locks are taken in this order: the user, then the counter. A rollback of
    the transaction undoes everything, numbers included.
    """
    if not events:
        return
    with connection.cursor() as cursor:
        cursor.execute(TAKE, [user.workspace_id, len(events)])
        (last,) = cursor.fetchone()
    for seq, event in enumerate(events, last - len(events) + 1):
        event.workspace_id, event.seq = user.workspace_id, seq
    AlertEvent.objects.bulk_create(events)
    outbox.queue(user, events)
    hints.signal_events(user.workspace_id)


@dataclass(frozen=True)
class EventPage:
    """Events after some number, in order, and the number after which to continue."""

    events: Sequence[AlertEvent]
    next: int


def newest(workspace: Workspace | int) -> int:
    """Return the number of the workspace's newest event, 0 if there is none."""
    numbers = EventCounter.objects.filter(workspace=workspace).values_list("last_seq", flat=True)
    return next(iter(numbers), 0)


def newest_of(workspaces: Collection[int]) -> dict[int, int]:
    """Map each of these workspaces that has events to the number of its newest event."""
    numbers = EventCounter.objects.filter(workspace__in=workspaces)
    return dict(numbers.values_list("workspace", "last_seq"))


def number(text: str, newest: int) -> int:
    """Parse a client's position in the feed: the number of the event to read after.

    Raises ValueError with the reason.
    """
    if text in ("", "now"):
        return newest
    found = int(text) if _NUMBER.fullmatch(text) else None
    if found is None or found > newest:
        raise ValueError(
            f"Give 0, `now` or the `next` of an earlier answer, not {text[:100]!r}: the newest"
            f" event has the number {newest}."
        )
    return found


def read(
    workspace: Workspace | int,
    after: int,
    alerts: QuerySet[Alert],
    rejected: QuerySet[AlertEvent] | None = None,
    most: int | None = None,
) -> EventPage:
    """Return the events of these alerts after the number `after`: at most `most`, by default PAGE.

    The events in `rejected` are included if given. For an erased user, only the events that report
    the erasure of alerts are returned.
    """
    most = most or PAGE
    # Read this first: every event up to this number is already visible, whatever is added later.
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
        # A separate query: no index serves both the events of these alerts and those of rejected
        # entries.
        last = events[-1].seq if len(events) == most else upto
        others = rejected.filter(
            workspace=workspace, seq__gt=after, seq__lte=last, user__erased_at=None
        )
        events = sorted([*events, *others.order_by("seq")[:most]], key=attrgetter("seq"))[:most]
    return EventPage(events, events[-1].seq if len(events) == most else max(after, upto))


def select_rejections(reach: Q) -> QuerySet[AlertEvent]:
    """Select the events about rejected entries that `reach` lets a client see."""
    return AlertEvent.objects.filter(reach, user__isnull=False)


def redact(user: MemoryUser, seqs: Collection[int], since: datetime.datetime) -> None:
    """Redact messages about rejected entries that name one of these or date from `since` or later.

    The reasons for rejections since then may quote these entries. The events themselves hold only
    numbers. Call it after the outcomes were redacted, as late as possible.
    """
    events = AlertEvent.objects.filter(
        Q(entries__overlap=_array(seqs)) | Q(at__gte=since), user=user
    )
    deliveries = Delivery.objects.filter(event__in=events)
    outbox.redact(user, deliveries.values_list("pk", flat=True))


def _array(numbers: Collection[int]) -> Value:
    """Return the numbers as a single parameter: a statement may have at most 65,535 of them."""
    return Value(list(numbers), ArrayField(BigIntegerField()))


# An alert's state after an event of each kind; events of other kinds do not change the state.
_STATES_AFTER = {
    AlertEventKind.OPENED: AlertState.OPEN,
    AlertEventKind.REOPENED: AlertState.OPEN,
    AlertEventKind.ACKNOWLEDGED: AlertState.ACKNOWLEDGED,
    AlertEventKind.SNOOZED: AlertState.SNOOZED,
    AlertEventKind.RESOLVED: AlertState.RESOLVED,
}


def live_at(found: QuerySet[Alert], moment: datetime.datetime) -> QuerySet[Alert]:
    """Select the alerts that were live at a moment, each annotated with its `state_then`.

    `state_then` is the state after the last event up to the moment.
    """
    steps = AlertEvent.objects.filter(alert=OuterRef("pk"), kind__in=_STATES_AFTER, at__lte=moment)
    states = [When(kind=kind, then=Value(state)) for kind, state in _STATES_AFTER.items()]
    told = steps.annotate(state_then=Case(*states, output_field=CharField()))
    state = Subquery(told.order_by("-seq").values("state_then")[:1])
    began = found.filter(opened_at__lte=moment)
    return began.annotate(state_then=state).filter(state_then__in=LIVE_STATES)
