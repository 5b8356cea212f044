"""Descriptions of rejected entries: which they are, why they were rejected, and how to fix them.

The feed, the stream and webhooks show the descriptions with an event, which holds the numbers of
all entries that were rejected together. The reasons are read when the event is shown, so that
events store no reasons that a redaction would have to remove.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection

from memory.models import AlertEvent
from memory.models.log import Outcome

# The reason names the error; the log keeps the entry as it is.
FIX = (
    "Append the record again, corrected as the reason says. If the reason names an edit, such as"
    ' widen_field, make that edit first: POST /v1/users/{user_id}/checkpoints/ with {"edits":'
    ' [{"op": "widen_field", …}]}. The rejected entry stays in the log and has no effect.'
)
# The maximum number of entries listed with their reasons; the first ones are listed.
MAX_NAMED = 20

# Read only the listed entries: an event may have 10,000, and a page of the feed 500 events.
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
    """An entry that the project cannot hold: why, and what to do."""

    seq: int
    reason: str
    fix: str = FIX


def named_by(events: Iterable[AlertEvent]) -> Mapping[int, Sequence[Rejected]]:
    """Map each event's primary key to those of its first entries that are still rejected.

    Events of alerts are left out. One statement reads all entries.
    """
    named: dict[int, list[Rejected]] = {event.pk: [] for event in events if event.alert_id is None}
    if named:
        with connection.cursor() as cursor:
            cursor.execute(_REASONS, [MAX_NAMED, Outcome.REJECTED, list(named)])
            for event, seq, reason in cursor.fetchall():
                named[event].append(Rejected(seq, reason))
    return named


def describe(event: AlertEvent, named: Sequence[Rejected]) -> dict[str, Any]:
    """Return the description of an event's entries: their number, and some of them."""
    return {
        "count": len(event.entries),
        "more": len(event.entries) - len(named),
        "entries": [asdict(one) for one in named],
    }
