"""A user's timeline: entries, versions, runs and alert events in a single sequence.

At most one page is read from each of the four tables, and these pages are merged. All tables are
read through an index, except for alert events, which are sorted. A position in the timeline
consists of a timestamp, the kind of row, and a tie-breaker for rows with the same timestamp, so
that each page begins exactly where the previous one ended, even if rows are added in the meantime.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet
from django.utils.dateparse import parse_datetime

from memory.alerts.models.alerts import AlertEvent
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run

PAGE = 50


class BadPlace(ValueError):
    """The text doesn't describe a position in the timeline, or the position doesn't exist."""


@dataclass(frozen=True)
class EventSource:
    """One of the four kinds of rows in the timeline, with its timestamp and tie-breaker columns."""

    name: str
    title: str
    model: type[Any]
    user: str
    at: str
    tie: str
    tie_type: type[int] | type[UUID]


KINDS: Mapping[str, EventSource] = {
    kind.name: kind
    for kind in (
        EventSource("entries", "entries", LogEntry, "user", "recorded_at", "seq", int),
        EventSource("versions", "versions", Checkpoint, "user", "created_at", "version", int),
        EventSource("runs", "runs", Run, "user", "queued_at", "pk", UUID),
        EventSource("alerts", "alert events", AlertEvent, "alert__user", "at", "seq", int),
    )
}
_RANKS = {name: rank for rank, name in enumerate(KINDS)}


@dataclass(frozen=True, order=True)
class Cursor:
    """A position in the timeline: right after the row it identifies and before all later rows."""

    at: datetime.datetime
    rank: int
    tie: int | UUID

    def __str__(self) -> str:
        return f"{self.at.astimezone(datetime.UTC).isoformat()},{list(KINDS)[self.rank]},{self.tie}"


def place_of(text: str) -> Cursor:
    """Parse a position in the timeline; raises BadPlace if the text is not one."""
    try:
        moment, name, tie = text.split(",")
        at, kind = parse_datetime(moment), KINDS[name]
        if at is None or at.tzinfo is None:
            raise BadPlace(text)
        number = kind.tie_type(tie)
    except (ValueError, KeyError) as error:
        raise BadPlace(text) from error
    if isinstance(number, int) and not 0 <= number < 2**63:
        raise BadPlace(text)
    return Cursor(at, _RANKS[name], number)


def end_of(day: datetime.date, zone: datetime.tzinfo) -> Cursor:
    """Return the position where a day ends; raises BadPlace for the calendar's last day."""
    try:
        midnight = datetime.datetime.combine(
            day + datetime.timedelta(days=1), datetime.time(), tzinfo=zone
        )
        return Cursor(midnight.astimezone(datetime.UTC), 0, 0)
    except OverflowError as error:
        raise BadPlace(str(day)) from error


@dataclass(frozen=True)
class TimelineEvent:
    """Something that happened: a row of one of the four kinds, and its timeline position."""

    cursor: Cursor
    kind: EventSource
    row: Any


@dataclass(frozen=True)
class TimelinePage:
    """A page of the timeline, newest first, and where the newer and older pages, if any, begin."""

    moments: Sequence[TimelineEvent]
    newer: Cursor | None
    older: Cursor | None


def page(
    user: MemoryUser,
    rows: Mapping[str, QuerySet[Any]],
    *,
    before: Cursor | None = None,
    after: Cursor | None = None,
    limit: int = PAGE,
) -> TimelinePage:
    """Return the page just before or after a position or, if none is given, the newest page.

    `rows` maps the name of each kind to show to the rows of that kind that may be shown.
    """
    forward = after is not None
    start = after if forward else before
    events: list[TimelineEvent] = []
    for name, chosen in rows.items():
        kind = KINDS[name]
        # Read one more row than fits on the page to find out whether there are further rows.
        part = _beyond(chosen.filter(**{kind.user: user}), kind, start, forward)[: limit + 1]
        events += (TimelineEvent(_make_cursor(kind, row), kind, row) for row in part)
    events.sort(key=lambda moment: moment.cursor, reverse=not forward)
    more, events = len(events) > limit, events[:limit]
    if forward:
        events.reverse()
    if not events:
        return TimelinePage([], None, None)
    first, last = events[0].cursor, events[-1].cursor
    if forward:
        return TimelinePage(events, first if more else None, last)
    return TimelinePage(events, first if before else None, last if more else None)


def _make_cursor(kind: EventSource, row: Any) -> Cursor:
    return Cursor(getattr(row, kind.at), _RANKS[kind.name], getattr(row, kind.tie))


def _beyond(
    rows: QuerySet[Any], kind: EventSource, start: Cursor | None, forward: bool
) -> QuerySet[Any]:
    """Return the rows of one kind that lie before or after the position, nearest first."""
    if start is not None:
        rank = _RANKS[kind.name]
        way = "gt" if forward else "lt"
        if rank == start.rank:
            # The first condition is redundant, but lets PostgreSQL use the index.
            rows = rows.filter(
                Q(**{f"{kind.at}__{way}e": start.at}),
                Q(**{f"{kind.at}__{way}": start.at}) | Q(**{f"{kind.tie}__{way}": start.tie}),
            )
        else:
            with_it = (rank > start.rank) is forward
            rows = rows.filter(**{f"{kind.at}__{way}{'e' if with_it else ''}": start.at})
    columns = [F(kind.at), F(kind.tie)]
    return rows.order_by(*(one.asc() if forward else one.desc() for one in columns))


def chosen(names: Collection[str]) -> Sequence[EventSource]:
    """Return the kinds with these names, or all kinds if none of the names are known."""
    return [kind for kind in KINDS.values() if kind.name in names] or list(KINDS.values())
