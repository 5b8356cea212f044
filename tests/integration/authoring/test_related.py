"""What a model is shown of a project, and asked about it: what the new entries touch."""

from typing import Any

import pytest

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, LogEntry
from memory.project import Outline
from tests.edits import define, dismiss
from tests.integration.authoring.conftest import TRIP, Say, Work, asked, edits, remembers, trip
from tests.integration.authoring.test_prompts import lives
from tests.llm_server import called
from tests.steps import head_of, settle_records
from workers.authoring.tools import NEW, SAME_AS

pytestmark = pytest.mark.django_db

AGAIN = "The user goes to Rome."


def trips_of(user: MemoryUser) -> int:
    outline = Outline.from_json(head_of(user).outline)
    return outline.domains["travel"].collections["trips"].count


def test_facts_behind_related_records_are_shown_and_may_be_corrected(
    user: MemoryUser, fact: int, say: Say, work: Work
) -> None:
    # Given a trip, and so many facts since that the one behind it is not among the newest
    work(edits(TRIP, trip(fact), finish=True))
    later = say(*(f"The user had soup number {n}." for n in range(30)), kind=EntryKind.FACT)
    work(edits(dismiss(*later), finish=True))
    # When a message is about the trip
    (message,) = say("We don't go to Rome after all.")
    corrected = "The user no longer goes to Rome on 2026-05-08."
    server = work(remembers((corrected, [message, fact])))
    # Then the fact is shown, and the new one may cite it, with what it says
    question = asked(server.requests[0])
    assert "The user goes to Rome on 2026-05-08." in question
    assert f"travel.trips.trip-{fact} Trip" in question
    assert LogEntry.objects.get(content=corrected).derived_from == [fact, message]


def test_an_old_record_is_found_by_the_fact_that_it_was_made_from(
    user: MemoryUser, fact: int, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a trip made from a fact, and newer ones, of which alone the words are compared
    monkeypatch.setattr("workers.authoring.workbench.SCANNED_RECORDS", 2)
    work(edits(TRIP, trip(fact), finish=True))
    towns = [{"to": f"Town {number}", "starts_on": "2026-01-01"} for number in range(4)]
    for_each = {"domain": "travel", "type": "Trip"}
    settle_records(
        user, *({**for_each, "key": f"t{n}", "data": one} for n, one in enumerate(towns))
    )
    # When a message is about it
    say("We don't go to Rome on 2026-05-08.")
    server = work(remembers())
    # Then it is shown
    assert f"travel.trips.trip-{fact} Trip" in asked(server.requests[0])


def test_keys_of_a_touched_collection_are_listed_however_large_it_is(
    user: MemoryUser, say: Say, work: Work
) -> None:
    lives(user, 1, 300)
    (fact,) = say("The visit 170 was no good.", kind=EntryKind.FACT)
    server = work(edits(dismiss(fact), finish=True))
    shown = asked(server.requests[0]).partition("Some of its records:\n")[2].splitlines()
    line = next(line for line in shown if line.startswith("life.visits has the keys "))
    assert "record-170" in line
    assert " others" in line
    assert len(line) < 700


def test_text_of_a_record_that_facts_say_is_not_repeated(
    user: MemoryUser, fact: int, say: Say, work: Work
) -> None:
    # Given a note that consists of two facts
    (other,) = say("The user likes trains.", kind=EntryKind.FACT)
    both = "The user goes to Rome on 2026-05-08. The user likes trains."
    work(edits({"op": "note", "text": both, "sources": [fact, other]}, finish=True))
    # When a message is about it
    (message,) = say("The train to Rome is late.")
    server = work(remembers(("The train to Rome is late.", [message])))
    # Then the note refers to the facts, and their texts are shown once
    question = asked(server.requests[0])
    assert f'{{"text": {{"from": [{fact}, {other}]}}}}' in question
    assert question.count("The user likes trains.") == 1


ROME: dict[str, Any] = {"to": "Rome, all of it", "starts_on": "2026-05"}


@pytest.fixture
def hidden_trip(user: MemoryUser, fact: int, work: Work, monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of a trip to Rome that a model is not shown."""
    work(edits(define("travel.Trip", to="str", starts_on="PartialDate"), trip(fact), finish=True))
    monkeypatch.setattr("workers.authoring.workbench.MAX_RELATED", 0)
    return f"trip-{fact}"


@pytest.mark.parametrize(("is_same", "count"), [(True, 1), (False, 2)])
def test_a_record_that_says_the_same_is_asked_about_before_another_is_added(
    user: MemoryUser, hidden_trip: str, say: Say, work: Work, is_same: bool, count: int
) -> None:
    (again,) = say("The user sees Rome, all of it, in May 2026.", kind=EntryKind.FACT)
    answer = {"0": {SAME_AS: hidden_trip} if is_same else {NEW: True}}
    server = work(
        edits(trip(again, **ROME), finish=True),
        called("edit", {"edits": answer, "finish": True}),
    )
    # Then the question names the record, and it costs one turn
    assert f"is this '{hidden_trip}'" in server.requests[1].results[-1]
    assert len(server.requests) == 2
    assert trips_of(user) == count
    (made,) = head_of(user).edits
    assert made["op"] == ("update" if is_same else "add")
    assert not {SAME_AS, NEW} & made.keys()


def test_a_model_that_sends_the_same_again_is_not_asked_again(
    user: MemoryUser, hidden_trip: str, say: Say, work: Work
) -> None:
    (again,) = say("The user sees Rome, all of it, in May 2026.", kind=EntryKind.FACT)
    other = {**ROME, "starts_on": "2026-05-08"}
    server = work(
        edits(trip(again, **ROME), finish=True),
        edits(trip(again, **ROME), trip(again, **other), finish=True),
        edits(trip(again, **ROME), finish=True),
    )
    told = server.requests[2].results[-1]
    assert told.count("is this ") == 1
    assert "edit 2: is this" in told
    assert trips_of(user) == 3


def test_a_record_that_is_new_or_was_shown_is_not_asked_about(
    user: MemoryUser, hidden_trip: str, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    (again,) = say("The user sees Rome, all of it, in May 2026.", kind=EntryKind.FACT)
    server = work(edits({**trip(again, **ROME), NEW: True}, finish=True))
    assert (len(server.requests), trips_of(user)) == (1, 2)
    monkeypatch.setattr("workers.authoring.workbench.MAX_RELATED", 12)
    (again,) = say("The user sees Rome, all of it, in June 2026.", kind=EntryKind.FACT)
    server = work(edits(trip(again, **{**ROME, "starts_on": "2026-06"}), finish=True))
    assert (len(server.requests), trips_of(user)) == (1, 3)


def test_a_record_with_the_same_values_is_asked_about_since_things_happen_twice(
    user: MemoryUser, hidden_trip: str, say: Say, work: Work
) -> None:
    (again,) = say(f"{AGAIN} On 2026-05-08.", kind=EntryKind.FACT)
    server = work(
        edits(trip(again), finish=True),
        called("edit", {"edits": {"0": {NEW: True}}, "finish": True}),
    )
    assert f"is this '{hidden_trip}'" in server.requests[1].results[-1]
    assert trips_of(user) == 2


def test_records_that_one_answer_adds_are_not_compared_with_each_other(
    user: MemoryUser, fact: int, work: Work
) -> None:
    server = work(edits(TRIP, trip(fact), trip(fact), finish=True))
    assert len(server.requests) == 1
    assert trips_of(user) == 2
