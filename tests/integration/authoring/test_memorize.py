"""Messages become facts: whole sessions, nothing cut off, each slice once."""

import datetime
from collections.abc import Callable

import pytest
from django.db.models import F
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.texts import split_text
from memory.llm.models import LlmCall
from memory.log.entry_log import coverage
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry
from tests.edits import note
from tests.integration.authoring.conftest import (
    Meanwhile,
    Say,
    Work,
    asked,
    edits,
    facts,
    finishes,
    numbers_in,
    refuses,
    remembers,
)
from tests.llm_server import LlmServer, Reply, Request, Said, called
from tests.steps import propose
from workers.authoring import memorize

pytestmark = pytest.mark.django_db

FRIDAY = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)


def numbers(request: Request) -> list[int]:
    """Return the messages that are to be remembered."""
    _, _, material = asked(request).rpartition("Messages to remember:")
    return numbers_in(material)


def remembering(*answers: Reply) -> Callable[[Request], Reply]:
    """A model that remembers one fact of each slice, unless told otherwise, as a note."""
    first = iter(answers)

    def script(request: Request) -> Reply:
        if "remember" in request.tools:
            if answers:
                return next(first)
            _, _, said = asked(request).rpartition("Messages to remember:")[2].partition(") ")
            text = f"The user said: {said.splitlines()[0][:60]}"
            return remembers((text, numbers(request)[:1]))
        if any(message["role"] == "assistant" for message in request.body["messages"]):
            return finishes()
        return edits(*(note("said", seq) for seq in numbers_in(asked(request))))

    return script


def slices(server: LlmServer) -> list[list[int]]:
    return [numbers(request) for request in server.requests if "remember" in request.tools]


def test_a_fact_is_masked_even_if_the_policy_refuses(
    user: MemoryUser, say: Say, work: Work
) -> None:
    # Given a message from before the policy
    key = "AKIA" + "IOSFODNN7EXAMPLE"
    say(f"My key is {key}.")
    Workspace.objects.update(content_secret="refused")
    # When a fact repeats what the policy refuses
    work(script=remembering(remembers((f"The user's key is {key}.", [1]))))
    # Then it is in the log without it, and the message is settled
    assert [fact.content for fact in facts()] == ["The user's key is [masked: secret]."]
    assert EntryOutcome.objects.filter(user=user, seq=1).exists()


def test_sessions_are_not_mixed(user: MemoryUser, say: Say, work: Work) -> None:
    # Given messages of two sessions that went on at the same time, and some of none
    for session in ("a", "b", "a", None, "b"):
        say(f"hello in {session}", session_id=session)
    # When they are remembered
    server = work(script=remembering())
    # Then each session was asked for by itself, the one that has waited longest first
    assert slices(server) == [[1, 3], [2, 5], [4]]
    assert coverage(user).pending == 0
    assert [fact.session_id for fact in facts()] == ["a", "b", None]


def test_a_fact_has_what_its_messages_share(say: Say, work: Work) -> None:
    # Given messages of a session, told by agents with metadata
    say("one", session_id="s", agent_id="cook", metadata={"n": 1, "tags": ["a"]})
    say("two", session_id="s", agent_id="cook", metadata={"n": 2, "tags": ["a"]})
    say("three", session_id="s", agent_id="clerk")
    # When facts are found in one, in two and in all of them
    work(remembers(("One.", [1]), ("Two.", [1, 2]), ("Three.", [1, 2, 3])), finishes())
    # Then each has what is the same in all of its messages
    assert [(fact.agent_id, fact.metadata) for fact in facts()] == [
        ("cook", {"n": 1, "tags": ["a"]}),
        ("cook", {"tags": ["a"]}),
        (None, None),
    ]


def test_a_fact_is_as_trustworthy_as_its_messages(say: Say, work: Work) -> None:
    # Given a conversation with a tool's answer in it
    say("Are you allergic to penicillin?", role="assistant", session_id="s")
    say("Yes.", role="user", session_id="s")
    say("The flight leaves on 5 May.", role="tool", session_id="s")
    say("Tea is good for you.", role="assistant", session_id="s")
    # When facts are found in several of them
    work(
        remembers(
            ("The user is allergic to penicillin.", [1, 2]),
            ("The user flies on 5 May 2026.", [2, 3]),
            ("Tea is good for the user.", [4]),
        ),
        finishes(),
    )
    # Then each has the class of the least trusted, but the model's question weakens no answer
    assert [fact.trust for fact in facts()] == ["user", "tool", "model"]


def test_long_session_is_split_on_turns(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    # Given a session that is longer than a question may be
    settings.UAC_LLM_WINDOW_CHARACTERS = 200
    texts = [f"message {number} " + "x" * 60 for number in range(10)]
    say(*texts, session_id="s")
    # When it is remembered
    server = work(script=remembering())
    # Then every message was in one question, whole, and later ones show what was said before
    assert [seq for slice_ in slices(server) for seq in slice_] == list(range(1, 11))
    asks = [asked(one) for one in server.requests if "remember" in one.tools]
    assert len(asks) > 3
    for text in texts:
        assert any(text in ask.rpartition("Messages to remember:")[2] for ask in asks)
    assert "Earlier in this session" not in asks[0]
    assert texts[0] in asks[1].rpartition("Messages to remember:")[0]
    assert coverage(user).pending == 0


def test_very_long_message_is_read_piece_by_piece(
    user: MemoryUser, say: Say, work: Work, settings: Settings
) -> None:
    # Given one message that is many questions long
    settings.UAC_LLM_WINDOW_CHARACTERS = 1000
    sentences = [f"This is sentence number {number} of a letter." for number in range(200)]
    say(" ".join(sentences))
    # When it is remembered
    server = work(script=remembering())
    # Then all of it was asked, in pieces that end with sentences, and it is covered once
    asks = [asked(one) for one in server.requests if "remember" in one.tools]
    assert len(asks) == len([sentence for sentence in asks if "piece" in sentence]) > 5
    assert all(sum(sentence in ask for ask in asks) == 1 for sentence in sentences)
    assert coverage(user).pending == 0
    assert len(facts()) == len(asks)


@given(st.text(max_size=400), st.integers(2, 50))
def test_pieces_are_the_text(text: str, most: int) -> None:
    pieces = list(split_text(text, most))
    assert "".join(pieces) == text
    assert all(len(piece) <= most for piece in pieces)


def test_message_that_no_fact_cites_is_dismissed(user: MemoryUser, say: Say, work: Work) -> None:
    say("Hello!", "I have a dog.", "Good morning.")
    server = work(remembers(("The user has a dog.", [2])), refuses())
    assert len(server.requests) == 2
    counts = coverage(user)
    assert (counts.covered, counts.dismissed) == (1, 2)
    reasons = EntryOutcome.objects.filter(user=user, outcome="dismissed")
    assert {row.reason for row in reasons} == {memorize.NOTHING_REMEMBERED}


def test_facts_of_several_calls_are_taken_together(say: Say, work: Work) -> None:
    # Given a model that hands in its facts by two calls of one answer
    say("I have a dog, Rex.", "And a cat.")
    both = [remembers(("The user has a dog, Rex.", [1])), remembers(("The user has a cat.", [2]))]
    work(script=remembering(Said(calls=tuple(call for one in both for call in one.calls))))
    assert [fact.derived_from for fact in facts()] == [[1], [2]]


WRONG_THEN_RIGHT: list[tuple[str, str, str]] = [
    ("The user flies on 2026-05-09.", "2026-05-09", "The user flies on 2026-05-08."),
    ("The user flies tomorrow.", "tomorrow", "The user flies on 2026-05-08."),
    ("The user pays 300 euros.", "300", "The user pays 250 euros."),
]


@pytest.mark.parametrize(("wrong", "word", "right"), WRONG_THEN_RIGHT)
def test_fact_that_nobody_said_is_mended(
    say: Say, work: Work, wrong: str, word: str, right: str
) -> None:
    # Given a model that first writes what nobody said
    (seq,) = say("Next Friday I fly for 250 euros.", occurred_at=FRIDAY)
    # When it remembers
    server = work(script=remembering(remembers((wrong, [seq])), remembers((right, [seq]))))
    # Then it is told the word, and what it says then is in the log, alone
    assert word in server.requests[1].results[0]
    assert [fact.content for fact in facts()] == [right]


def test_relative_words_of_a_message_get_the_day_on_which_they_were_said(
    say: Say, work: Work
) -> None:
    (earlier,) = say("I bought a boat.", occurred_at=FRIDAY)
    (seq,) = say("Last week, that is.", occurred_at=FRIDAY + datetime.timedelta(days=3))
    facts_sent = remembers(("The user bought a boat last week.", [earlier, seq]))
    work(script=remembering(facts_sent))
    assert [one.content for one in facts()] == [
        "The user bought a boat last week. (said on 2026-05-04)"
    ]


RESOLVED = [
    'The user flew on Friday, 2026-05-01 ("last Friday").',
    "The user flies next Friday (2026-05-08).",
    "The user's favourite song is “Yesterday”.",
    "The user moves next year (2027).",
]


@pytest.mark.parametrize("text", RESOLVED)
def test_relative_words_beside_their_date_are_clear(say: Say, work: Work, text: str) -> None:
    said = (
        "I flew last Friday, I fly next Friday, I move next year, and my favourite song is"
        " Yesterday."
    )
    (seq,) = say(said, occurred_at=FRIDAY + datetime.timedelta(days=3))
    work(script=remembering(remembers((text, [seq]))))
    assert [fact.content for fact in facts()] == [text]


def test_a_day_may_be_one_of_the_month_in_the_message_before(say: Say, work: Work) -> None:
    say("Is the user free in September?", occurred_at=FRIDAY, session_id="s")
    work(script=remembering(remembers(("The user is asked about September.", [1]))))
    (seq,) = say("The 14th suits me.", occurred_at=FRIDAY, session_id="s")
    text = "The user is free on 2026-09-14."
    work(script=remembering(remembers((text, [seq]))))
    assert facts()[-1].content == text
    assert facts()[-1].derived_from == [seq]


def test_derived_fact_is_marked(say: Say, work: Work) -> None:
    # Given a fact with a number that follows from what is said
    (seq,) = say("I bought three tickets at 20 euros each.")
    fact = {
        "text": "The user paid 60 euros for three tickets.",
        "sources": [seq],
        "derived": "three times 20",
    }
    work(script=remembering(called("remember", {"facts": [fact]})))
    # Then it is taken, with how it follows
    assert [fact.data for fact in facts()] == [{"derived": "three times 20"}]


def test_slice_is_remembered_once(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a worker that loses its lane while the model answers: another one has it
    say("I have a dog.")
    lanes = Lane.objects.filter(user=user, name=LaneName.STRUCTURE)
    meanwhile(lambda: lanes.update(token=F("token") + 1, lease_owner="another"))
    # When the answer comes
    server = work(remembers(("The user has a dog.", [1])))
    # Then nothing of it is written: not the fact, not the outcome
    assert len(server.requests) == 1
    assert set(LlmCall.objects.values_list("outcome", flat=True)) == {"ok"}
    assert coverage(user).total == coverage(user).pending == 1
    # And when the other one does the work, each is there once
    lanes.update(lease_owner="", lease_expires_at=None)
    work(script=remembering())
    assert len(facts()) == 1
    assert coverage(user).pending == 0


def test_message_settled_by_an_agent_meanwhile_stays_settled(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given two messages, of which a product's agent settles one while the model reads them
    say("I have a dog.", "I have a cat.")
    meanwhile(lambda: propose(user, note("has a dog", 1), considered=[1]))
    # When the model has remembered both
    work(
        remembers(("The user has a dog.", [1]), ("The user has a cat.", [2])),
        refuses(),
    )
    # Then the other's fact is taken, and this one's is not told twice
    assert [fact.content for fact in facts()] == ["The user has a cat."]
    counts = coverage(user)
    assert (counts.covered, counts.pending) == (2, 1)


def test_correction_may_name_the_old_value(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a remembered fact, which is shown, and a message that corrects it
    (told,) = say("The user goes to bed at 22:30.", kind=EntryKind.FACT, occurred_at=FRIDAY)
    work(edits(note("to bed at 22:30", told)), finishes())
    (later,) = say("I go to bed at 23:15 these days.", occurred_at=FRIDAY)
    text = "The user goes to bed at 23:15, no longer at 22:30."
    # When the model names the old value, citing the message alone, and then the fact beside it
    server = work(
        remembers((text, [later])),
        remembers((text, [told])),
        remembers((text, [told, later])),
        edits(note(text, later + 1)),
        finishes(),
    )
    # Then it is refused without the fact, and without the message, and accepted with both
    assert "ungrounded_time" in server.requests[1].results[0]
    assert "cites none of these messages" in server.requests[2].results[0]
    fact = LogEntry.objects.get(user=user, seq=later + 1)
    assert (fact.content, fact.derived_from) == (text, [told, later])
    assert coverage(user).pending == 0
