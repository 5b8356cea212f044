"""Descriptions of rejected entries: their numbers, why they were rejected, and how to fix them.

The event feed, the event stream and webhooks show these descriptions with an event that lists the
numbers of all entries rejected together. The reasons are read when the event is shown, not stored
in it: otherwise a redaction would have to remove the reasons from events.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection

from memory.models import AlertEvent
from memory.models.log import Outcome

# How to fix a rejected entry, shown along with the reason; the reason describes the error.
FIX = (
    "Append the record again, corrected as the reason says. If the reason names an edit, such as"
    ' widen_field, make that edit first: POST /v1/users/{user_id}/checkpoints/ with {"edits":'
    ' [{"op": "widen_field", …}]}. The rejected entry stays in the log and has no effect.'
)
# Maximum number of entries listed with reasons per event; only the first ones are listed.
MAX_NAMED = 20

# Read only the entries to be listed: an event may have 10,000, and a feed page may have 500 events.
_REASONS = """
SELECT event.id, outcome.seq, outcome.reason
FROM memory_alertevent AS event
CROSS JOIN LATERAL unnest(event.entries[1:%s]) AS named (seq)
JOIN memory_entryoutcome AS outcome
    ON outcome.user_id = event.user_id AND outcome.seq = named.seq AND outcome.outcome = %s
WHERE event.id = ANY(%s)
ORDER BY event.id, outcome.seq
"""


@dataclass(frozen=True)
class Rejected:
    """An entry that the project cannot hold, with the reason and how to fix the entry."""

    seq: int
    reason: str
    fix: str = FIX


def named_by(events: Iterable[AlertEvent]) -> Mapping[int, Sequence[Rejected]]:
    """Map each event's primary key to its first MAX_NAMED entries that are still rejected.

    Events about alerts are left out. A single SQL statement reads the entries of all events.
    """
    named: dict[int, list[Rejected]] = {event.pk: [] for event in events if event.alert_id is None}
    if named:
        with connection.cursor() as cursor:
            cursor.execute(_REASONS, [MAX_NAMED, Outcome.REJECTED, list(named)])
            for event, seq, reason in cursor.fetchall():
                named[event].append(Rejected(seq, reason))
    return named


def describe(event: AlertEvent, named: Sequence[Rejected]) -> dict[str, Any]:
    """Describe an event's entries: their number, and details of the `named` entries."""
    return {
        "count": len(event.entries),
        "more": len(event.entries) - len(named),
        "entries": [asdict(one) for one in named],
    }
