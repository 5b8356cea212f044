"""What is told of entries that the project cannot hold: which, why, and what to do about it.

The feed, the stream and webhooks tell it of an event, which holds the numbers of all entries that
were rejected together. The reasons are read when they are told, so that an event has none that a
redaction would have to reach.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection

from memory.models import AlertEvent
from memory.models.log import Outcome

# The reason says what of it is wrong; the log keeps it as it is.
FIX = (
    "Append the record again as the reason says. An edit that the reason names, such as"
    ' widen_field, goes before it: POST /v1/users/{user_id}/checkpoints/ with {"edits":'
    ' [{"op": "widen_field", …}]}. The rejected entry stays in the log and changes nothing.'
)
# Of more entries, the first are named with their reasons.
MAX_NAMED = 20

# An event may have 10,000 entries, and a page of the feed 500 events.
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
    """Return primary key of an event → the first of its entries, as far as they are rejected still.

    Events of alerts are not in it. They are looked up in one statement.
    """
    named: dict[int, list[Rejected]] = {event.pk: [] for event in events if event.alert_id is None}
    if named:
        with connection.cursor() as cursor:
            cursor.execute(_REASONS, [MAX_NAMED, Outcome.REJECTED, list(named)])
            for event, seq, reason in cursor.fetchall():
                named[event].append(Rejected(seq, reason))
    return named


def describe(event: AlertEvent, named: Sequence[Rejected]) -> dict[str, Any]:
    """Return what is told of an event's entries: how many, those named, how many more there are."""
    return {
        "count": len(event.entries),
        "more": len(event.entries) - len(named),
        "entries": [asdict(one) for one in named],
    }
