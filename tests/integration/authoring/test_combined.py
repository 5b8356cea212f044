"""Facts and the edits that bring them into the project, in one answer of the model."""

import datetime
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm import track_records
from memory.llm.models import LlmCall, LlmPurpose
from memory.log.entry_log import coverage
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions import runs
from memory.versions.models.runs import Run
from tests.edits import note, retire, update
from tests.integration.authoring.conftest import (
    TRIP,
    Fields,
    LaneNow,
    Meanwhile,
    Outcomes,
    Say,
    Work,
    asked,
    begins,
    edits,
    facts,
    finishes,
    numbers_in,
    remembers,
    trip,
)
from tests.integration.authoring.test_misbehaviour import constraint
from tests.integration.authoring.test_structure import DAYS, DAYS_TESTS, SAID_ON
from tests.integration.redaction.conftest import MARKER, found
from tests.llm_server import Called, Request, Said, called, said
from tests.steps import append_texts, head_of, propose
from workers import tasks
from workers.authoring import memorize, prompts

pytestmark = pytest.mark.django_db

MAY = datetime.datetime(2026, 5, 2, 12, tzinfo=datetime.UTC)
ROME = "The user travels to Rome on 2026-05-08."
TEA = "The user likes tea."


def both(facts: Sequence[tuple[str, Sequence[int]]], edits: Any) -> Said:
    """Answer with facts, each with the messages that it comes from, and with edits."""
    told = [{"text": text, "sources": list(sources)} for text, sources in facts]
    return called("remember", {"facts": told, "edits": edits})


def may_edit(request: Request) -> bool:
    """Return whether facts are asked for together with edits."""
    functions = {tool["function"]["name"]: tool["function"] for tool in request.body["tools"]}
    remember = functions.get("remember")
    return remember is not None and "edits" in remember["parameters"]["properties"]


def facts_of(user: MemoryUser) -> list[tuple[int, str]]:
    return [(fact.seq, fact.content or "") for fact in facts() if fact.user_id == user.pk]


def says_more(user: MemoryUser, text: str = "Hello!", **fields: Any) -> int:
    """Have the product append an entry, as a message unless told otherwise."""
    return append_texts(user, text, session_id="b", **fields)[0]


def test_an_answer_that_is_right_at_once_is_the_only_call(
    user: MemoryUser,
    workspace: Workspace,
    say: Say,
    work: Work,
    outcomes: Outcomes,
    lane: LaneNow,
    fields_of: Fields,
) -> None:
    # Given a message
    (message,) = say("I am going to Rome next Friday!", occurred_at=MAY, session_id="s1")
    # When a model sends the fact in it together with the edits
    server = work(both([(ROME, [message])], [TRIP, trip(message + 1)]))
    # Then that was all: both are covered, and the record cites the fact
    (request,) = server.requests
    assert may_edit(request)
    assert "Your first fact is number 2, the second 3, and so on" in asked(request)
    assert "The project:\nIt is empty.\n" in asked(request)
    assert outcomes() == {1: "covered", 2: "covered"}
    fact = LogEntry.objects.get(user=user, seq=2)
    assert (fact.kind, fact.derived_from, fact.session_id) == (EntryKind.FACT, [1], "s1")
    assert fields_of("travel.trips") == {
        "trip-2": {"to": "Rome", "starts_on": {"$date": "2026-05-08"}}
    }
    assert lane().due_at is None
    # And the call is the session whose version this is
    (call,) = LlmCall.objects.filter(user=user)
    assert (call.purpose, call.checkpoint) == (LlmPurpose.MEMORIZE, user.head)
    assert (call.accepted, call.refusals) == (True, 0)
    record = track_records.read(workspace, "openai:the-model")
    assert (record.sessions, record.accepted, record.refused) == (1, 1, 0)
    assert list(problems(user)) == []


def test_a_later_session_is_shown_the_project(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a project with a trip
    say("I am going to Rome next Friday!", occurred_at=MAY)
    work(both([(ROME, [1])], [TRIP, trip(2)]))
    # When there are two more sessions, of which the second is about it
    say("I like tea.", session_id="a")
    say("Rome is off.", session_id="b")
    retired = "The user no longer travels to Rome."
    retired_trip = retire("travel.trips.trip-2", 6, reason="Rome is off")
    server = work(
        both([(TEA, [3])], [note(TEA, 5)]),
        both([(retired, [4])], [retired_trip]),
    )
    # Then each takes one call, is shown what is related, and counts its facts from the log's end
    assert facts_of(user)[1:] == [(5, TEA), (6, retired)]
    first, second = map(asked, server.requests)
    assert "Your first fact is number 5, " in first
    assert "Your first fact is number 6, " in second
    assert "trips: Trip(" in first
    assert "travel.trips has the keys trip-2" in first
    assert "trip-2" in second.partition("Some of its records:\n")[2].partition("\n\n")[0]
    assert coverage(user).pending == 0
    assert head_of(user).edits == [retired_trip]


def test_refused_edits_are_mended_in_the_session_that_they_begin(
    user: MemoryUser, workspace: Workspace, say: Say, work: Work, fields_of: Fields
) -> None:
    # Given a model whose edits say what its facts do not
    (message,) = say("I am going to Rome next Friday!", occurred_at=MAY)
    wrong = trip(2, starts_on="2026-05-09")
    # When it mends them
    server = work(
        both([(ROME, [message])], [TRIP, wrong]),
        edits(update("travel.trips.trip-2", 2, starts_on="2026-05-08"), finish=True),
    )
    # Then the conversation goes on: the second request begins with the whole first one
    first, request = server.requests
    assert request.body["tools"] == first.body["tools"]
    assert request.body["messages"][:2] == first.body["messages"]
    (answer,) = request.body["messages"][2]["tool_calls"]
    assert json.loads(answer["function"]["arguments"])["edits"] == [TRIP, wrong]
    # And it is told what is wrong with its edits
    (told,) = request.results
    assert "The facts are stored." in told
    assert "2026-05-09" in told
    assert "Nothing was committed; your edits are kept" in told
    # And what it mends is committed, as one session with a refusal
    assert fields_of("travel.trips")["trip-2"]["starts_on"] == {"$date": "2026-05-08"}
    calls = LlmCall.objects.filter(user=user).order_by("started_at")
    assert [(call.purpose, call.turn) for call in calls] == [("memorize", 1), ("structure", 2)]
    assert len({call.work for call in calls}) == 1
    assert [(call.accepted, call.refusals) for call in calls] == [(True, 1), (None, None)]
    record = track_records.read(workspace, "openai:the-model")
    assert (record.sessions, record.proposals, record.proposals_refused) == (1, 2, 1)


def test_edits_that_are_refused_to_the_end_count_as_one_refused_session(
    user: MemoryUser, workspace: Workspace, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a model that never mends its edits
    monkeypatch.setattr("workers.authoring.structure.MAX_REFUSALS", 2)
    say("I like tea.")
    # When they are refused as often as they may be
    server = work(both([(TEA, [1])], [note("Likes 3 teas.", 2)]), finishes())
    # Then the session is refused, once, and the fact waits
    assert len(server.requests) == 2
    assert facts_of(user) == [(2, TEA)]
    assert (coverage(user).covered, coverage(user).pending) == (1, 1)
    record = track_records.read(workspace, "openai:the-model")
    assert (record.sessions, record.refused, record.proposals_refused) == (1, 1, 2)


def test_facts_whose_edits_fail_do_not_hold_up_the_next_session(
    user: MemoryUser, say: Say, work: Work, outcomes: Outcomes
) -> None:
    # Given two sessions, and a model that fails on the fact of the first one
    say("I like tea.", session_id="a")
    say("I like milk.", session_id="b")
    milk = "The user likes milk."

    def script(request: Request) -> Said:
        if may_edit(request):
            return finishes() if request.results else both([(TEA, [1])], [note("Likes 3 teas.", 3)])
        if "remember" in request.tools:
            return remembers((milk, [2]))
        return finishes() if TEA in asked(request) else edits(note(milk, 4), finish=True)

    # When it works on both
    server = work(script=script)
    # Then the second one is asked for its facts alone, and settled
    asks = [one for one in server.requests if "remember" in one.tools and begins(one)]
    assert [may_edit(request) for request in asks] == [True, False]
    assert facts_of(user) == [(3, TEA), (4, milk)]
    # And the fact on which it fails alone is rejected, since the other one passes
    assert outcomes() == {1: "covered", 2: "covered", 3: "rejected", 4: "covered"}


def test_facts_that_get_other_numbers_are_still_the_ones_that_edits_cite(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a product that appends entries while the model answers
    say("I like tea.", "I like coffee.", session_id="a")
    meanwhile(lambda: [says_more(user) for _ in range(2)])
    coffee = "The user likes coffee."
    # When it answers with the numbers that it was told
    server = work(
        both([(TEA, [1]), (coffee, [2])], [note(TEA, 3), note(coffee, 4)]),
        remembers(),
    )
    # Then its edits cite the numbers that the facts got
    assert len(server.requests) == 2
    assert facts_of(user) == [(5, TEA), (6, coffee)]
    assert head_of(user).edits == [note(TEA, 5), note(coffee, 6)]
    assert coverage(user).pending == 0


def test_a_fact_that_the_product_appends_meanwhile_is_settled_too(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a product that appends a fact while the model answers
    say("I like tea.", session_id="a")
    milk = "The user likes milk."
    meanwhile(lambda: says_more(user, milk, kind=EntryKind.FACT))
    # When the model's edits do not know of it
    server = work(both([(TEA, [1])], [note(TEA, 2)]), edits(note(milk, 2), finish=True))
    # Then it is asked for, in the session that goes on
    assert "entry 2 was considered" in server.requests[1].results[0]
    assert head_of(user).edits == [note(TEA, 3), note(milk, 2)]
    assert coverage(user).pending == 0


def test_a_number_that_no_fact_has_cites_nothing(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a model that counts on, to the number of an entry that comes meanwhile
    say("I like tea.", session_id="a")
    meanwhile(lambda: [says_more(user) for _ in range(2)])
    server = work(
        both([(TEA, [1])], [note(TEA, 3)]),
        edits(note(TEA, 4), finish=True),
        remembers(),
    )
    # Then it is told, with the number that its fact got, and what is committed cites the fact
    assert "The facts are stored: 2 is 4." in server.requests[1].results[0]
    assert "which does not exist" in server.requests[1].results[0]
    assert head_of(user).edits == [note(TEA, 4)]


def test_facts_that_an_agent_settles_meanwhile_take_their_edits_along(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given two messages, of which a product's agent settles one while the model reads them
    say("I have a dog.", "I have a cat.")
    meanwhile(lambda: propose(user, note("has a dog", 1), considered=[1]))
    # When the model has edits for both
    dog, cat = "The user has a dog.", "The user has a cat."
    server = work(both([(dog, [1]), (cat, [2])], [note(dog, 3), note(cat, 4), note(cat, 3, 4)]))
    # Then those of the other's fact are left out, and the rest is committed
    assert len(server.requests) == 1
    assert facts_of(user) == [(3, cat)]
    assert head_of(user).edits == [note(cat, 3), note(cat, 3)]
    assert coverage(user).pending == 0


def test_a_model_may_leave_the_edits_out(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a model that sends facts alone, or an empty list
    for number, message in enumerate(("I like tea.", "I like coffee.")):
        (seq,) = say(message, session_id=str(number))
        fact = message.replace("I", "The user").replace("like", "likes")
        answer = both([(fact, [seq])], []) if number else remembers((fact, [seq]))
        # When the edits are asked for
        server = work(answer, edits(note(fact, seq + 1)), finishes())
        # Then that is a session of its own
        assert [may_edit(one) for one in server.requests[:1]] == [True]
        assert len(server.requests) == 3
        assert coverage(user).pending == 0
        assert LlmCall.objects.filter(purpose="structure", turn=1, accepted=True).count() == (
            number + 1
        )
    assert not LlmCall.objects.filter(purpose="memorize", accepted__isnull=False).exists()


def test_without_the_setting_facts_are_asked_for_alone(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    settings.UAC_LLM_COMBINE_STEPS = False
    say("I like tea.")
    server = work(remembers((TEA, [1])), edits(note(TEA, 2)), finishes())
    request = server.requests[0]
    assert not may_edit(request)
    assert "The project:" not in request.text
    assert "dataclasses" not in request.text
    assert coverage(user).pending == 0


MALFORMED: dict[str, Any] = {
    "text": '[{"op": "note"}]',
    "an object": {"op": "note"},
    "texts in a list": ["note"],
    "sources that are no list": [{"op": "note", "text": TEA, "sources": 2}],
    "an unknown field": [{**note(TEA, 2), "source_text": 1, "why": "x"}],
    "a missing field": [{"op": "note", "sources": [2]}],
    "numbers as text": [{**note(TEA), "sources": ["2"]}],
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_edits_keep_the_facts(user: MemoryUser, say: Say, work: Work, case: str) -> None:
    say("I like tea.")
    server = work(both([(TEA, [1])], MALFORMED[case]), edits(note(TEA, 2), finish=True))
    # The fact is kept, and the session for edits begins with what is wrong with them.
    assert len(server.requests) == 2
    assert server.requests[1].results[0]
    assert facts_of(user) == [(2, TEA)]
    assert head_of(user).edits == [note(TEA, 2)]


def test_edits_that_were_not_asked_for_are_refused_with_the_call(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    settings.UAC_LLM_COMBINE_STEPS = False
    say("I like tea.")
    server = work(
        both([(TEA, [1])], [note(TEA, 2)]),
        remembers((TEA, [1])),
        edits(note(TEA, 2), finish=True),
    )
    assert "'edits' was unexpected" in server.requests[1].results[0]
    assert coverage(user).pending == 0


def test_refused_facts_are_resent_with_edits(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.")
    server = work(
        both([("The user likes 3 teas.", [1])], [note("Likes 3 teas.", 2)]),
        both([(TEA, [1])], [note(TEA, 2)]),
    )
    assert len(server.requests) == 2
    assert "ungrounded" in server.requests[1].results[0]
    assert facts_of(user) == [(2, TEA)]
    assert head_of(user).edits == [note(TEA, 2)]
    calls = LlmCall.objects.filter(user=user).order_by("started_at")
    assert [(call.turn, call.accepted) for call in calls] == [(1, True), (2, None)]


def test_only_the_refused_fact_is_sent_again(user: MemoryUser, say: Say, work: Work) -> None:
    # Given an answer of which one fact is refused
    say("I like tea.", "I like milk.", "Bye!")
    milk = "The user likes milk."
    notes = [{"op": "note", "from": seq} for seq in (4, 5)]
    server = work(
        both([(TEA, [1]), ("The user likes 3 milks.", [2]), ("Bye!", [3])], notes),
        # When the model sends that one alone, and takes another one back
        called("remember", {"facts": {"5": milk, "6": None}}),
    )
    # Then everything else was kept, and the notes have the facts' texts
    assert len(server.requests) == 2
    assert facts_of(user) == [(4, TEA), (5, milk)]
    assert head_of(user).edits == [note(TEA, 4), note(milk, 5)]
    assert coverage(user).pending == 0


def test_refusal_of_a_fact_names_what_is_wrong_with_the_edits_as_well(
    user: MemoryUser, say: Say, work: Work
) -> None:
    # Given an answer with a wrong fact, an edit that does not fit, and a fact without any edit
    say("I like tea.", "I like milk.", "I like cake.")
    milk, cake = "The user likes milk.", "The user likes cake."
    wrong = [{"note": 4, "title": "Tea"}, {"note": 5}]
    server = work(
        both([("The user likes 3 teas.", [1]), (milk, [2]), (cake, [3])], wrong),
        # When all is mended at once
        called(
            "remember",
            {"facts": {"4": TEA}, "edits": {"0": None, "2": {"note": [4, 6]}}},
        ),
    )
    # Then nothing else is asked
    told = server.requests[1].results[0]
    assert "ungrounded" in told
    assert "title" in told
    assert len(server.requests) == 2
    assert coverage(user).pending == 0


def test_unsettled_facts_are_named_with_a_refused_fact(
    user: MemoryUser, say: Say, work: Work
) -> None:
    say("I like tea.", "I like milk.")
    milk = "The user likes milk."
    server = work(
        both([("The user likes 3 teas.", [1]), (milk, [2])], [{"note": 3}]),
        called("remember", {"facts": {"3": TEA}, "edits": {"1": {"note": 4}}}),
    )
    assert "entry 4 was considered" in server.requests[1].results[0]
    assert len(server.requests) == 2
    assert head_of(user).edits == [note(TEA, 3), note(milk, 4)]


def test_model_may_look_something_up_before_it_remembers(
    user: MemoryUser, say: Say, work: Work
) -> None:
    say("I am going to Rome next Friday!", occurred_at=MAY)
    work(both([(ROME, [1])], [TRIP, trip(2)]))
    say("I like tea.")
    server = work(
        Said(calls=(Called("look_up", {"text": "Rome"}), Called("open_domain", {"domain": "x"}))),
        both([(TEA, [3])], [note(TEA, 4)]),
    )
    found, missing = server.requests[1].results
    assert "travel.trips.trip-2" in found
    assert "There is no domain 'x'" in missing
    assert len(server.requests) == 2
    assert coverage(user).pending == 0


def test_edits_beside_the_facts_are_taken_with_them(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.")
    facts_alone = remembers((TEA, [1])).calls
    server = work(Said(calls=(*facts_alone, *edits(note(TEA, 2), finish=True).calls)))
    assert len(server.requests) == 1
    assert head_of(user).edits == [note(TEA, 2)]


def test_edits_before_any_fact_are_not_taken(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.")
    server = work(edits(note(TEA, 1), finish=True), finishes(), both([(TEA, [1])], [note(TEA, 2)]))
    assert "send the facts first" in server.requests[1].results[0]
    assert "send the facts first" in server.requests[2].results[0]
    assert head_of(user).edits == [note(TEA, 2)]


def test_stored_facts_stay_as_they_are(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a model that mends its edits by `remember`, first with another fact
    say("I like tea.")
    wrong = {"note": "Likes 3 teas.", "from": 2}
    server = work(
        both([(TEA, [1])], [wrong]),
        called("remember", {"facts": {"2": "Tea."}, "edits": {"0": TEA}}),
        called("remember", {"facts": {}, "edits": {"0": TEA}}),
    )
    # Then only edits are taken
    assert "The facts are stored, and stay" in server.requests[2].results[0]
    assert len(server.requests) == 3
    assert facts_of(user) == [(2, TEA)]
    assert head_of(user).edits == [note(TEA, 2)]


def test_change_to_an_unsent_fact_is_refused(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.")
    server = work(
        both([("The user likes 3 teas.", [1])], []),
        called("remember", {"facts": {"9": TEA}}),
        called("remember", {"facts": {"2": TEA}, "edits": [note(TEA, 2)]}),
    )
    assert "numbered 2 to 2" in server.requests[2].results[-1]
    assert facts_of(user) == [(2, TEA)]


def test_single_edit_is_changed_by_number(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.", "I like milk.")
    milk = "The user likes milk."
    server = work(
        both([(TEA, [1]), (milk, [2])], [note(TEA, 3), note("Likes 3 milks.", 4)]),
        called("edit", {"edits": {"1": milk}, "finish": True}),
    )
    assert len(server.requests) == 2
    assert head_of(user).edits == [note(TEA, 3), note(milk, 4)]


def test_constraint_rules_are_sent_when_needed(user: MemoryUser, say: Say, work: Work) -> None:
    say("To Rome on 2025-01-03.", occurred_at=SAID_ON)
    fact = {"text": "The user travels to Rome on 2025-01-03.", "sources": [1]}
    edited = [TRIP, trip(2, starts_on="2025-01-03")]
    written = {**constraint(DAYS, DAYS_TESTS), "sources": [2]}
    server = work(
        called("remember", {"facts": [fact], "edits": edited, "write_constraints": True}),
        edits(written, finish=True),
    )
    assert prompts.CONSTRAINTS not in server.requests[0].body["messages"][0]["content"]
    assert prompts.CONSTRAINTS in server.requests[1].results[0]
    assert "constraints/soon.py" in head_of(user).tree


@pytest.mark.parametrize("kind", [EntryKind.FACT, EntryKind.CORRECTION])
def test_edits_are_not_asked_for_while_something_else_waits_for_them(
    user: MemoryUser, say: Say, work: Work, kind: EntryKind
) -> None:
    (waits,) = say("The user likes milk.", kind=kind)
    (message,) = say("I like tea.")
    server = work(
        remembers((TEA, [message])),
        edits(note("likes milk", waits), note(TEA, message + 1), finish=True),
    )
    assert not may_edit(server.requests[0])
    assert "The project:" not in server.requests[0].text
    assert coverage(user).pending == 0


def test_edits_are_not_asked_for_with_a_message_in_pieces(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    settings.UAC_LLM_WINDOW_CHARACTERS = 1000
    say("I like tea. " * 100)
    server = work(
        remembers((TEA, [1])),
        remembers(),
        edits(note(TEA, 2), finish=True),
    )
    assert [may_edit(request) for request in server.requests[:2]] == [False, False]
    assert coverage(user).pending == 0


def test_edits_for_more_facts_than_one_window_holds_are_asked_for_again(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    # Given facts that do not fit into one window of entries
    settings.UAC_LLM_WINDOW_CHARACTERS = 1000
    likes = [f"The user likes tea {'very, ' * 60}much, cup {number}." for number in range(4)]
    say(*[f"cup {number}" for number in range(4)])
    whole = [{"text": text, "sources": [n], "derived": f'"cup {n - 1}"'}
             for n, text in enumerate(likes, 1)]  # fmt: skip

    def script(request: Request) -> Said:
        if "remember" in request.tools:
            notes = [note("tea", 5 + number) for number in range(4)]
            return called("remember", {"facts": whole, "edits": notes})
        return edits(*(note("tea", seq) for seq in numbers_in(asked(request))), finish=True)

    # When a model sends edits for all of them
    server = work(script=script)
    # Then they are structured window by window, and each is settled
    assert len(server.requests) == 3
    assert coverage(user).pending == 0


def test_a_message_that_is_redacted_meanwhile_leaves_neither_fact_nor_edit(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a message that is redacted while the model answers
    gone, other = say(f"I take {MARKER}.", "I like tea.")
    meanwhile(lambda: redaction.redact(user, [gone], by="test", reason=""))
    takes = f"The user takes {MARKER}."
    # When the answer comes
    server = work(both([(takes, [gone]), (TEA, [other])], [note(takes, 3), note(TEA, 4)]))
    tasks.work("redactions", user.pk)
    # Then nothing of it is kept or proposed
    assert len(server.requests) == 1
    assert facts_of(user) == []
    assert not Run.objects.filter(user=user).exists()
    assert found() == []
    # And the other message is settled at the next try
    work(both([(TEA, [other])], [note(TEA, 4)]))
    assert facts_of(user) == [(4, TEA)]
    assert coverage(user).pending == 0
    assert list(problems(user)) == []


def test_a_fact_that_is_redacted_before_its_edits_are_proposed_is_not(
    user: MemoryUser, say: Say, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a fact that is redacted as soon as it is stored
    say(f"I take {MARKER}.")
    takes = f"The user takes {MARKER}."
    original = memorize.memorize

    def memorize_then_redact(*arguments: Any) -> Any:
        first = original(*arguments)
        redaction.redact(user, [1, 2], by="test", reason="")
        return first

    monkeypatch.setattr(memorize, "memorize", memorize_then_redact)
    # When its edits are about to be proposed
    server = work(both([(takes, [1])], [note(takes, 2)]))
    tasks.work("redactions", user.pk)
    # Then they are not
    assert len(server.requests) == 1
    assert not Run.objects.filter(user=user).exists()
    assert found() == []


def test_cut_off_answer_is_retried_without_edits(user: MemoryUser, say: Say, work: Work) -> None:
    say("I like tea.")
    server = work(
        said("The user", finish="length"),
        remembers((TEA, [1])),
        edits(note(TEA, 2), finish=True),
    )
    assert [may_edit(request) for request in server.requests[:2]] == [True, False]
    assert coverage(user).pending == 0


def test_constraints_and_alerts_are_shown(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a trip and a constraint, which came in one call
    say("To Rome on 2025-01-03.", occurred_at=SAID_ON)
    trip_to_rome = "The user travels to Rome on 2025-01-03."
    written = {**constraint(DAYS, DAYS_TESTS), "sources": [2]}
    first = work(both([(trip_to_rome, [1])], [TRIP, trip(2, starts_on="2025-01-03"), written]))
    assert len(first.requests) == 1
    assert "constraints/soon.py" in head_of(user).tree
    # When there are messages of the day on which it fires
    say("I like tea.", occurred_at=SAID_ON + datetime.timedelta(days=1))
    server = work(both([(TEA, [3])], [note(TEA, 4)]))
    # Then the alert is shown with them, and the questions begin with the same instructions
    assert "Alerts on 2024-12-31, the day of the newest entry:\n- warning" in asked(
        server.requests[0]
    )
    systems = [one.requests[0].body["messages"][0]["content"] for one in (first, server)]
    assert systems[0] == systems[1]
    assert systems[0].startswith(prompts.STRUCTURE)
    assert prompts.MEMORIZE in systems[0]


def test_without_sandbox_workers_the_facts_are_found_all_the_same(
    user: MemoryUser, say: Say, work: Work, lane: LaneNow, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a project with a constraint, and no worker that would run it
    say("To Rome on 2025-01-03.", occurred_at=SAID_ON)
    trip_to_rome = "The user travels to Rome on 2025-01-03."
    written = {**constraint(DAYS, DAYS_TESTS), "sources": [2]}
    work(both([(trip_to_rome, [1])], [TRIP, trip(2, starts_on="2025-01-03"), written]))
    say("I like tea.", occurred_at=SAID_ON)
    monkeypatch.setattr(runs, "wait", lambda *arguments: None)
    # When there are messages
    server = work(remembers((TEA, [3])))
    # Then the facts alone are asked for, and the edits as soon as there is a worker
    (request,) = server.requests
    assert not may_edit(request)
    assert facts_of(user)[1:] == [(4, TEA)]
    assert lane().due_at is not None
    assert "no sandbox worker finished run" in lane().last_error
