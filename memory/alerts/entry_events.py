"""Events about entries that were rejected or had values set aside, and how to fix these.

The event feed, the event stream and webhooks show these descriptions with an event that lists the
numbers of all such entries of one version. The reasons and fields are read when the event is shown,
not stored in it: otherwise a redaction would have to remove them from events.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from django.db import connection

from memory.alerts.models.alerts import AlertEvent, AlertEventKind
from memory.log.fixes import FIX, FIX_SET_ASIDE
from memory.log.models.entries import Outcome

# Maximum number of entries listed with reasons per event; only the first ones are listed.
MAX_NAMED = 20

# Read only the entries to be listed: an event may have 10,000, and a feed page may have 500 events.
_OUTCOMES = """
SELECT event.id, outcome.seq, outcome.reason, outcome.set_aside
FROM memory_alertevent AS event
CROSS JOIN LATERAL unnest(event.entries[1:%s]) AS named (seq)
JOIN memory_entryoutcome AS outcome
    ON outcome.user_id = event.user_id AND outcome.seq = named.seq
    AND CASE event.kind WHEN %s THEN outcome.outcome = %s ELSE outcome.set_aside <> '{}' END
WHERE event.id = ANY(%s)
ORDER BY event.id, outcome.seq
"""


@dataclass(frozen=True)
class Rejected:
    """An entry that the project cannot hold, with the reason and how to fix the entry."""

    seq: int
    reason: str
    fix: str = FIX


@dataclass(frozen=True)
class SetAside:
    """An entry with values that did not fit these fields, and how to make them fit."""

    seq: int
    fields: Sequence[str]
    fix: str = FIX_SET_ASIDE


Named: TypeAlias = Rejected | SetAside


def named_by(events: Iterable[AlertEvent]) -> Mapping[int, Sequence[Named]]:
    """Map each event's primary key to its first MAX_NAMED entries that it still applies to.

    Events about alerts are left out. A single SQL statement reads the entries of all events.
    """
    kinds = {event.pk: event.kind for event in events if event.alert_id is None}
    named: dict[int, list[Named]] = {event: [] for event in kinds}
    if named:
        rejected = AlertEventKind.REJECTED
        with connection.cursor() as cursor:
            cursor.execute(_OUTCOMES, [MAX_NAMED, rejected, Outcome.REJECTED, list(named)])
            for event, seq, reason, fields in cursor.fetchall():
                is_rejected = kinds[event] == rejected
                named[event].append(Rejected(seq, reason) if is_rejected else SetAside(seq, fields))
    return named


def describe(event: AlertEvent, named: Sequence[Named]) -> dict[str, Any]:
    """Describe an event's entries: their number, and details of the `named` entries."""
    return {
        "count": len(event.entries),
        "more": len(event.entries) - len(named),
        "entries": [asdict(one) for one in named],
    }
