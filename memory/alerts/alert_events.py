"""A workspace's feed of events: changes to alerts, and entries that were rejected or set aside.

Events are numbered 1, 2, 3 and so on, without gaps.

An event's number is assigned while the workspace's counter is locked, and the lock is held until
the transaction commits. The numbers therefore become visible in order: a reader that has seen event
n hasn't missed any earlier event, and can continue reading after n. Only transactions that record
events lock the counter.
"""

import datetime
import re
import time
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

from memory.alerts import alert_events
from memory.alerts.delivery import outbox
from memory.alerts.models.alerts import (
    LIVE_STATES,
    Alert,
    AlertEvent,
    AlertEventKind,
    AlertState,
    EventCounter,
)
from memory.alerts.models.webhooks import Delivery
from memory.kernel.admission import slots
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import hints
from memory.log.models.entries import Outcome
from memory.versions.checkpoints import Decision
from memory.versions.models.runs import Run

# Maximum number of events returned by one read of the feed.
PAGE = 500
_NUMBER = re.compile(r"[0-9]{1,18}")

TAKE = """
INSERT INTO memory_eventcounter (workspace_id, last_seq) VALUES (%s, %s)
ON CONFLICT (workspace_id)
DO UPDATE SET last_seq = memory_eventcounter.last_seq + excluded.last_seq
RETURNING last_seq
"""


def record(user: MemoryUser, events: Sequence[AlertEvent]) -> None:
    """Store these unsaved events about the user, in order, and wake the listeners.

    Call this once, as late as possible, in the transaction that changed the alerts or rejected the
    entries: until the transaction commits, events about other users in the workspace have to wait.
    The user's row must already be locked, because locks are taken in the order user, then counter.
    If the transaction is rolled back, the numbers are released too.
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
    """Some events from the feed, in order, and the number after which to continue reading."""

    events: Sequence[AlertEvent]
    next: int


def newest(workspace: Workspace | int) -> int:
    """Return the workspace's newest event number, or 0 if it has no events."""
    numbers = EventCounter.objects.filter(workspace=workspace).values_list("last_seq", flat=True)
    return next(iter(numbers), 0)


def newest_of(workspaces: Collection[int]) -> dict[int, int]:
    """Return the newest event number of each workspace that has events, keyed by workspace."""
    numbers = EventCounter.objects.filter(workspace__in=workspaces)
    return dict(numbers.values_list("workspace", "last_seq"))


def number(text: str, newest: int) -> int:
    """Parse a client's position in the feed: the event number after which to continue reading.

    Raises ValueError, with the reason, if the text is not a valid position.
    """
    if text in ("", "now"):
        return newest
    seq = int(text) if _NUMBER.fullmatch(text) else None
    if seq is None or seq > newest:
        raise ValueError(
            f"Give 0, `now` or `next` from an earlier response, not {text[:100]!r}: the newest"
            f" event is number {newest}."
        )
    return seq


def read(
    workspace: Workspace | int,
    after: int,
    alerts: QuerySet[Alert],
    entries: QuerySet[AlertEvent] | None = None,
    most: int | None = None,
) -> EventPage:
    """Return the next events about these alerts, up to `most` (default: PAGE).

    Only events with numbers greater than `after` are returned, including those in `entries`. For
    erased users, only the events that report erased alerts are returned.
    """
    most = most or PAGE
    # Read the newest number first: every event up to it is already visible, and later events get
    # higher numbers.
    upto = newest(workspace)
    events_after = AlertEvent.objects.filter(
        Q(alert__user__erased_at=None) | Q(kind=AlertEventKind.ERASED),
        workspace=workspace,
        seq__gt=after,
        seq__lte=upto,
        alert__in=alerts,
    )
    events = list(events_after.order_by("seq")[:most])
    if entries is not None:
        # This is a separate query, because no index serves both events about alerts and events
        # about entries.
        last = events[-1].seq if len(events) == most else upto
        others = entries.filter(
            workspace=workspace, seq__gt=after, seq__lte=last, user__erased_at=None
        )
        events = sorted([*events, *others.order_by("seq")[:most]], key=attrgetter("seq"))[:most]
    return EventPage(events, events[-1].seq if len(events) == most else max(after, upto))


def select_entry_events(reach: Q) -> QuerySet[AlertEvent]:
    """Select the events about entries that `reach` lets a client see."""
    return AlertEvent.objects.filter(reach, user__isnull=False)


def redact(user: MemoryUser, seqs: Collection[int], since: datetime.datetime) -> None:
    """Redact webhook messages about rejected entries: those naming `seqs`, and all since `since`.

    The reasons for rejections since then may quote the entries numbered `seqs`. The events
    themselves contain only entry numbers. Call this after the entries' outcomes have been redacted,
    as late as possible.
    """
    events = AlertEvent.objects.filter(
        Q(entries__overlap=_array(seqs)) | Q(at__gte=since), user=user
    )
    deliveries = Delivery.objects.filter(event__in=events)
    outbox.redact(user, deliveries.values_list("pk", flat=True))


def _array(numbers: Collection[int]) -> Value:
    """Return the numbers as one array, since a statement can have at most 65,535 parameters."""
    return Value(list(numbers), ArrayField(BigIntegerField()))


# An alert's state after an event of each of these kinds. Events of other kinds don't change it.
_STATES_AFTER = {
    AlertEventKind.OPENED: AlertState.OPEN,
    AlertEventKind.REOPENED: AlertState.OPEN,
    AlertEventKind.ACKNOWLEDGED: AlertState.ACKNOWLEDGED,
    AlertEventKind.SNOOZED: AlertState.SNOOZED,
    AlertEventKind.RESOLVED: AlertState.RESOLVED,
}


def live_at(alerts: QuerySet[Alert], moment: datetime.datetime) -> QuerySet[Alert]:
    """Select the alerts that were live at a given time, each annotated with its `state_then`.

    `state_then` is the alert's state after its last event at or before that time.
    """
    steps = AlertEvent.objects.filter(alert=OuterRef("pk"), kind__in=_STATES_AFTER, at__lte=moment)
    states = [When(kind=kind, then=Value(state)) for kind, state in _STATES_AFTER.items()]
    annotated = steps.annotate(state_then=Case(*states, output_field=CharField()))
    state = Subquery(annotated.order_by("-seq").values("state_then")[:1])
    began = alerts.filter(opened_at__lte=moment)
    return began.annotate(state_then=state).filter(state_then__in=LIVE_STATES)


# How often, in seconds, a waiting request checks for events even if it gets no signal.
LOOK_SECONDS = 2.0


def wait_for(
    workspace: Workspace,
    after: int,
    alerts: QuerySet[Alert],
    rejected: QuerySet[AlertEvent] | None,
    limit: float,
) -> tuple[alert_events.EventPage, bool]:
    """Wait for events with numbers above `after` that are about `alerts` or in `rejected`.

    Waits at most `limit` seconds. Returns (page, admitted); `admitted` is False if the request
    would have had to wait but no slot was free.
    """
    deadline = time.monotonic() + limit
    page = alert_events.read(workspace, after, alerts, rejected)
    if page.events or limit <= 0:
        return page, True
    with (
        slots.WAITING.take(workspace.pk) as admitted,
        hints.events_signalled(workspace.pk) as wait,
    ):
        while admitted:
            # Read the feed again now that we receive signals, and then at intervals, because
            # signals may be lost.
            page = alert_events.read(workspace, page.next, alerts, rejected)
            left = deadline - time.monotonic()
            if page.events or left <= 0:
                break
            wait(min(left, LOOK_SECONDS))
    return page, admitted


def record_entries(
    work: LeasedWork, user: MemoryUser, decisions: Sequence[Decision], at: datetime.datetime
) -> None:
    """Record all rejected entries in the workspace's feed as one event, and all set-aside values.

    This locks the feed's counter, so call it last.
    """
    seqs = {
        AlertEventKind.REJECTED: [d.seq for d in decisions if d.outcome == Outcome.REJECTED],
        AlertEventKind.SET_ASIDE: [d.seq for d in decisions if d.set_aside],
    }
    events = [
        AlertEvent(
            kind=kind,
            user=user,
            entries=sorted(seqs_of_kind),
            actor=_actor_of(work),
            run=work if isinstance(work, Run) else None,
            at=at,
        )
        for kind, seqs_of_kind in seqs.items()
        if seqs_of_kind
    ]
    record(user, events)


def _actor_of(work: LeasedWork) -> str:
    """Return the actor to name in an event: the lane's name, or the run's kind."""
    match work:
        case Lane():
            return work.name
        case Run():
            return work.kind
    return str(work._meta.verbose_name)
