"""A message becomes a record: it is remembered, structured, judged and committed."""

import datetime
from typing import Any

import pytest

from memory.kernel.models.users import MemoryUser
from memory.llm.models import LlmCall, LlmPurpose
from memory.log.models.entries import EntryKind, LogEntry
from tests.edits import add, define
from tests.integration.authoring.conftest import (
    Fields,
    LaneNow,
    Outcomes,
    Say,
    Work,
    edits,
    finishes,
    remembers,
)
from tests.steps import head_of

pytestmark = pytest.mark.django_db

MAY = datetime.datetime(2026, 5, 2, 12, tzinfo=datetime.UTC)
TRIP = define("travel.Trip", to="str", starts_on="datetime.date")


def trip(source: int, **fields: Any) -> dict[str, Any]:
    return add("travel.Trip", source, **{"to": "Rome", "starts_on": "2026-05-08", **fields})


def test_message_becomes_a_record(
    user: MemoryUser, say: Say, work: Work, outcomes: Outcomes, lane: LaneNow, fields_of: Fields
) -> None:
    # Given a message
    (message,) = say("I am going to Rome next Friday!", occurred_at=MAY, session_id="s1")
    # When a model remembers it and brings the fact into the project
    server = work(
        remembers(("The user travels to Rome on 2026-05-08.", [message])),
        edits(TRIP, trip(2)),
        finishes(),
    )
    # Then both are covered, and the record cites the fact
    assert outcomes() == {1: "covered", 2: "covered"}
    fact = LogEntry.objects.get(user=user, seq=2)
    assert (fact.kind, fact.derived_from, fact.session_id) == (EntryKind.FACT, [1], "s1")
    assert fact.occurred_at == MAY
    assert fields_of("travel.trips") == {
        "trip-2": {"to": "Rome", "starts_on": {"$date": "2026-05-08"}}
    }
    # And every call is on record with the version that came of it
    calls = LlmCall.objects.filter(user=user).order_by("started_at")
    assert [(call.purpose, call.outcome) for call in calls] == [
        (LlmPurpose.MEMORIZE, "ok"),
        (LlmPurpose.STRUCTURE, "ok"),
        (LlmPurpose.STRUCTURE, "ok"),
    ]
    assert {call.checkpoint for call in calls if call.purpose == LlmPurpose.STRUCTURE} == {
        head_of(user)
    }
    assert lane().due_at is None
    assert len(server.requests) == 3
