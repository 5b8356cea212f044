"""mem0's events: the results of additions to a user's log.

An event consists of the entries from one append, and the event's id is the first entry's id. The
entries are consecutive and share a recording timestamp that no other append to the user's log has.
"""

import datetime
import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet

from memory.integrations.mem0.memories import Memory, of_told
from memory.integrations.mem0.messages import MAX_MESSAGES
from memory.kernel.http.pagination import PAGE_BYTES
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm import lane_status
from memory.llm.lane_status import LaneState
from memory.log import entry_log
from memory.log.models.entries import EntryKind, LogEntry, Outcome

_ADDED = (EntryKind.MESSAGE, EntryKind.FACT)


class UnknownEvent(Exception):
    """The workspace has no event with this id."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"There is no event {event_id[:100]!r} in this workspace.")


def one(workspace: Workspace, event_id: str) -> dict[str, Any]:
    """Return an event in mem0's form; raises UnknownEvent if there is none with this id."""
    try:
        key = uuid.UUID(event_id)
    except ValueError:
        raise UnknownEvent(event_id) from None
    first = (
        _added()
        .filter(pk=key, user__workspace=workspace, user__erased_at=None)
        .select_related("user")
        .first()
    )
    if first is None:
        raise UnknownEvent(event_id)
    return _event(first)


def newest(of: Q, number: int) -> list[dict[str, Any]]:
    """Return the newest events of these users, newest first.

    `of` selects their entries. There are at most `number` events, of about PAGE_BYTES in total.
    """
    appended = _added().filter(of, user__erased_at=None).order_by("-recorded_at", "user_id")
    events: list[dict[str, Any]] = []
    told = 0
    for user, recorded_at in appended.values_list("user_id", "recorded_at").distinct()[:number]:
        if told > PAGE_BYTES:
            break
        entries = _added().filter(user=user, recorded_at=recorded_at).order_by("seq")
        first = entries.select_related("user").first()
        if first is None:  # redacted or erased in the meantime
            continue
        event = _event(first)
        told += sum(len(one["content"] or "") for one in event["payload"]["messages"])
        told += sum(len(one["memory"] or "") for one in event["results"])
        events.append(event)
    return events


def added(memory: Memory) -> dict[str, Any]:
    """Return a new memory in mem0's form."""
    text = memory.now.content
    return {"id": str(memory.told.pk), "event": "ADD", "memory": text, "data": {"memory": text}}


def _added() -> QuerySet[LogEntry]:
    """Select entries that the product added, as opposed to those a language model extracted."""
    return LogEntry.objects.filter(kind__in=_ADDED, derived_from=[])


def _event(first: LogEntry) -> dict[str, Any]:
    user = first.user
    entries = list(
        _added()
        .filter(
            user=user,
            seq__range=(first.seq, first.seq + MAX_MESSAGES),
            recorded_at=first.recorded_at,
        )
        .order_by("seq")
    )
    inferred = first.kind == EntryKind.MESSAGE
    status, ended, metadata = _standing(user, entries) if inferred else ("SUCCEEDED", None, {})
    ended = ended or (first.recorded_at if status == "SUCCEEDED" else None)
    return {
        "id": str(first.pk),
        "event_type": "ADD",
        "status": status,
        "payload": {
            "user_id": user.user_id,
            "infer": inferred,
            "messages": [
                {"role": entry.role, "content": entry.content}
                for entry in entries
                if entry.redacted_at is None
            ],
        },
        "metadata": metadata,
        "results": [
            added(memory)
            for memory in of_told(user, _remembered(user, entries) if inferred else entries)
        ],
        "created_at": first.recorded_at.isoformat(),
        "updated_at": (ended or first.recorded_at).isoformat(),
        "started_at": None,
        "completed_at": ended.isoformat() if ended else None,
        "latency": (ended - first.recorded_at).total_seconds() * 1000 if ended else None,
    }


def _remembered(user: MemoryUser, messages: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the facts derived from these messages."""
    seqs = [message.seq for message in messages]
    facts = LogEntry.objects.filter(
        user=user, kind=EntryKind.FACT, seq__gt=seqs[0], derived_from__overlap=seqs
    )
    return list(facts.order_by("seq"))


def _standing(
    user: MemoryUser, messages: Sequence[LogEntry]
) -> tuple[str, datetime.datetime | None, dict[str, Any]]:
    """Return the status of the model's work on the messages, its end time, and details."""
    settled = entry_log.outcomes(user, [message.seq for message in messages])
    if all(message.seq in settled or message.redacted_at for message in messages):
        ended = max((one.decided_at for one in settled.values()), default=None)
        reasons = {
            str(seq): one.reason
            for seq, one in sorted(settled.items())
            if one.outcome == Outcome.REJECTED
        }
        return ("FAILED", ended, {"rejected": reasons}) if reasons else ("SUCCEEDED", ended, {})
    standing = lane_status.standing(user)
    metadata = {
        "state": standing.state.value,
        "until": standing.until.isoformat() if standing.until else None,
        "reason": standing.reason or None,
    }
    return "RUNNING" if standing.state == LaneState.WORKING else "PENDING", None, metadata
