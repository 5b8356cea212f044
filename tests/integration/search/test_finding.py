"""Results of a search, and their order."""

import datetime
import random
from typing import Any

import pytest

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import EntryKind
from memory.recall.search import excerpts, index_maintenance
from memory.recall.search.documents import CorpusName
from memory.recall.search.finding import MAX_MISSED, MAX_TERMS, find
from memory.recall.search.words import best_part
from tests.integration.search.conftest import (
    NOON,
    Find,
    Say,
    SayAll,
    index_all,
    leased,
    redact,
    segments_of,
    texts,
)

pytestmark = pytest.mark.django_db

DAY = datetime.timedelta(days=1)


def test_an_empty_log_has_no_hits(search: Find) -> None:
    found = search("anything at all?")

    assert found.hits == []
    assert found.searched == {"facts": 0, "archive": 0}


def test_an_entry_is_found_as_soon_as_it_is_in_the_log(say: Say, search: Find) -> None:
    said = say("I have adopted a puppy called Toby")

    found = search("Which puppies were adopted?")

    assert [hit.entry.seq for hit in found.hits] == [said.seq]
    assert found.terms == ["puppi", "adopt"]


def test_entry_with_more_of_the_words_comes_first(say: Say, search: Find) -> None:
    say("We ate pizza", session_id="a")
    say("Toby ate my pizza and my shoes", session_id="b")
    say("Nothing to see here", session_id="c")

    found = search("Did Toby eat shoes or pizza?")

    assert texts(found) == ["Toby ate my pizza and my shoes", "We ate pizza"]
    assert 1 > found.hits[0].score > found.hits[1].score > 0


def test_an_answer_beside_the_words_is_found_within_its_session(say: Say, search: Find) -> None:
    say("Where did you get the guitar?", session_id="a")
    say("It was a present from my grandfather.", session_id="a")
    say("Goodbye", session_id="b")

    assert texts(search("guitar")) == [
        "Where did you get the guitar?",
        "It was a present from my grandfather.",
    ]


def test_without_sessions_what_is_said_on_a_day_is_together(say: Say, search: Find) -> None:
    say("About the guitar:", session_id=None)
    say("a present", session_id=None)
    say("something else", session_id=None, occurred_at=NOON + DAY)

    assert texts(search("guitar")) == ["About the guitar:", "a present"]


def test_entries_of_the_named_speaker_come_first(say: Say, search: Find) -> None:
    say("I love sailing", speaker="Jon Snow", session_id="a")
    say("I love sailing", speaker="Gina", session_id="b")

    for name in ("Jon", "Gina"):
        hits = search(f"What does {name} love?", explain=True).hits
        assert hits[0].entry.speaker is not None
        assert name in hits[0].entry.speaker
        assert [hit.explanation is not None and hit.explanation.speaker_named for hit in hits] == [
            True,
            False,
        ]


def test_a_day_is_found_however_it_is_written(say: Say, search: Find) -> None:
    say("bowling", session_id="a", occurred_at=NOON)
    say("bowling", session_id="b", occurred_at=NOON + 40 * DAY)

    for day in ("2026-03-02", "March 2nd", "2 March 2026", "March"):
        assert search(f"bowling on {day}").hits[0].entry.occurred_at == NOON, day


def test_days_are_those_of_where_the_user_lives(say: Say, search: Find) -> None:
    late = NOON.replace(hour=23, minute=30)  # the third of March in Berlin
    say("bowling", occurred_at=late)

    assert search("3 March").hits
    assert not search("on the 2nd").hits


def test_ends_of_the_calendar_do_no_harm(say: Say, search: Find) -> None:
    first = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    last = datetime.datetime(9999, 12, 31, 23, 59, tzinfo=datetime.UTC)
    say("genesis", occurred_at=first)
    say("apocalypse", occurred_at=last, session_id="two")

    assert texts(search("genesis")) == ["genesis"]
    assert texts(search("apocalypse")) == ["apocalypse"]


def test_facts_corrections_and_records_are_one_corpus(say: Say, search: Find) -> None:
    say("Ada flew to Lisbon", EntryKind.FACT, session_id="a")
    say("It was Porto, not Lisbon", EntryKind.CORRECTION, session_id="b")
    say(
        None,
        EntryKind.RECORD,
        session_id="c",
        data={"type": "Trip", "key": "lisbon-1", "data": {"city": "Lisbon", "stops": [{"n": 2}]}},
    )
    say(
        None,
        EntryKind.RECORD,
        session_id="d",
        data={"type": "Trip", "key": "lisbon-1", "retired": True},
    )
    say("Lisbon!", session_id="e")

    facts = search("Lisbon", corpora=[CorpusName.FACTS])
    archive = search("Lisbon", corpora=[CorpusName.ARCHIVE])

    assert set(texts(facts)) == {
        "Ada flew to Lisbon",
        "It was Porto, not Lisbon",
        "Trip lisbon-1: city: Lisbon; stops: n 2",
        "Trip lisbon-1: retired",
    }
    assert texts(archive) == ["Lisbon!"]
    assert len(search("Lisbon").hits) == 5
    assert facts.searched == {"facts": 4}


def test_a_fact_names_the_messages_it_rests_on(say: Say, search: Find) -> None:
    said = say("I was in Lisbon")
    fact = say("Ada was in Lisbon", EntryKind.FACT, derived_from=[said.seq])

    (hit,) = search("Lisbon", corpora=[CorpusName.FACTS]).hits

    assert hit.rests_on == [fact.seq, said.seq]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Ich habe einen Hund adoptiert", "Hund"),
        ("El niño está en São Paulo", "nino sao"),
        ("我上周在东京买了一把吉他", "东京的吉他"),
        ("昨日は京都で寿司を食べました", "京都 寿司"),
        ("我家有一只猫", "猫"),
        ("猫が大好きです", "猫"),
        ("新しい車を買いました", "車はどこですか"),
        ("새 차를 샀어요", "차"),
        ("Я купил собаку", "СОБАКУ"),
        ("मैंने एक किताब खरीदी", "किताब"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("ΟΔΟΣ Αθηνών", "οδος"),
        ("ﬁne ｗｉｄｅ", "fine wide"),
    ],
)
def test_other_languages_are_found(say: Say, search: Find, said: str, asked: str) -> None:
    say("Something in English that has nothing to do with it", session_id="other")
    say(said)

    assert texts(search(asked)) == [said]


def test_inflected_name_alone_is_found_after_what_has_it_as_it_is_written(
    say: Say, search: Find
) -> None:
    told = ("Wir waren gestern am Kölner Dom", "Morgen fahren wir nach Köln", "Das ist in Koblenz")
    for session, text in enumerate(told):
        say(text, session_id=str(session))
    for session, text in enumerate(("The shower is broken", "We saw a show"), 10):
        say(text, session_id=str(session))

    assert {*texts(search("Kölner"))} == {*told[:2]}
    assert texts(search("Shower"))[0] == "The shower is broken"


@pytest.mark.parametrize("question", ["", " ", "?!", "the of and", "\u200b", "🎸", "\ud800", "_"])
def test_a_question_without_words_finds_nothing(say: Say, search: Find, question: str) -> None:
    say("the of and 🎸")

    assert search(question).hits == []


def test_no_more_than_top_k_and_none_below_the_threshold(say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * 5 + ["a puppy and a kitten"] * 2)

    all_ = search("puppy kitten", top_k=100)
    assert [hit.words for hit in all_.hits] == [5, 5, 2, 2, 2, 2, 2]
    assert len(search("puppy kitten", top_k=3).hits) == 3
    assert len(search("puppy kitten", top_k=100, threshold=all_.hits[1].score).hits) == 2
    assert search("puppy kitten", threshold=1.0).hits == []


def test_newest_of_equal_hits_comes_first(say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * 4)

    assert [hit.entry.seq for hit in search("puppy").hits] == [4, 3, 2, 1]


def test_hit_too_long_makes_room_for_shorter_ones(say: Say, search: Find) -> None:
    say("puppy puppy puppy " + "and so on " * 20, session_id="a")
    say("a puppy of ours", session_id="b")
    say("puppy", session_id="c")

    assert texts(search("puppy", words=5)) == ["puppy", "a puppy of ours"]
    assert texts(search("puppy", words=3)) == ["puppy"]
    assert search("puppy", words=1).hits[0].words == 1


def test_search_for_fitting_hits_is_bounded(say: Say, search: Find) -> None:
    for number in range(MAX_MISSED):
        say(
            f"Toby Toby and a puppy, number {number}, with many other words", session_id=f"{number}"
        )
    say("Toby", session_id="short")

    assert search("Toby and his puppy", words=1, top_k=1000).hits == []
    assert texts(search("Toby and his puppy", words=200, top_k=1000))[-1] == "Toby"


def test_long_question_is_searched_by_its_first_words(say: Say, search: Find) -> None:
    say("Toby")

    found = search(" ".join(f"word{number}" for number in range(1000)) + " Toby")

    assert (len(found.terms), found.hits) == (MAX_TERMS, [])


def test_words_of_scripts_without_spaces_count_by_character(say: Say, search: Find) -> None:
    say("我上周在东京买了一把吉他")

    assert search("吉他", words=5).hits == []
    assert search("吉他", words=20).hits[0].words == 13


def test_excerpt_of_a_long_text_contains_the_words(say: Say, search: Find) -> None:
    say("filler " * 10_000 + "the secret puppy " + "filler " * 20_000)

    (hit,) = search("secret puppies", words=100).hits

    assert hit.is_cut
    assert "the secret puppy" in hit.text
    assert hit.words <= 100


def test_excerpt_of_a_text_that_matches_everywhere_is_bounded(
    say: Say, search: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given 20 passages of some 4,000 characters, of which one says more than the others
    said = [f"puppy{number} " + "x" * 64 for number in range(20 * 60)]
    said[700] = "puppy700 barked"
    say(" ".join(f"puppy {word}" for word in said))
    scanned: list[int] = []

    def counted(text: str, *arguments: Any) -> str:
        scanned.append(len(text))
        return best_part(text, *arguments)

    monkeypatch.setattr(excerpts, "best_part", counted)
    # When they are found
    (hit,) = search("puppy barked").hits
    # Then the best one is given, and no more is read than is given
    assert hit.is_cut
    assert "puppy700 barked" in hit.text
    assert scanned == [len(hit.text)]
    assert excerpts.MAX_TEXT / 2 < len(hit.text) <= excerpts.MAX_TEXT


def test_passage_of_many_spaces_is_searched_by_its_beginning(say: Say, search: Find) -> None:
    say("the puppy barked" + " " * 900_000 + "the end")

    (hit,) = search("puppy end").hits

    assert hit.is_cut
    assert hit.text.startswith("puppy barked")


def test_an_explanation_adds_up(say: Say, search: Find) -> None:
    say("A guitar and a piano", speaker="Ada")
    say("Oh, a guitar!")

    first, second = search("Ada's guitar and piano", explain=True).hits

    for place, hit in enumerate((first, second), 1):
        explanation = hit.explanation
        assert explanation is not None
        assert explanation.rank == place
        assert explanation.of == 2
        assert sum(term.score for term in explanation.terms) == pytest.approx(hit.score, abs=1e-5)
    assert first.explanation is not None
    assert {term.term: term.heard for term in first.explanation.terms} == {
        "ada": 1,
        "guitar": 1.5,
        "piano": 1,
    }
    assert search("guitar").hits[0].explanation is None


def test_nothing_later_than_asked_for_is_found(say: Say, search: Find) -> None:
    say("puppy one")
    say("puppy two")

    assert texts(search("puppy", up_to=1)) == ["puppy one"]


def test_another_user_is_not_found(say: Say, workspace: Workspace) -> None:
    say("my secret puppy")
    other = create_user(workspace, "bob", time_zone="UTC", metadata=None)

    assert find(other, "secret puppy").hits == []


def test_a_redacted_entry_is_not_found_indexed_or_not(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    secret = say("a secret puppy", session_id="a")
    say("another puppy", session_id="b")
    assert len(index_all(user)) == 1
    assert len(search("puppy").hits) == 2

    redact(secret)

    found = search("puppy secret", explain=True)
    assert texts(found) == ["another puppy"]
    assert found.searched["archive"] == 1
    assert len(index_all(user)) == 1
    assert texts(search("puppy secret")) == ["another puppy"]
    assert search("puppy secret").searched["archive"] == 1


WORDS = (
    *("puppy", "kitten", "guitar", "piano", "lisbon", "porto", "sailing"),
    *("bowling", "march", "pizza", "shoes", "garden"),
)


@pytest.mark.parametrize("seed", range(5))
def test_cuts_between_segments_change_no_result(
    eager: None, user: MemoryUser, say: Say, search: Find, seed: int
) -> None:
    """All other searches are compared with one without an index."""
    chance = random.Random(seed)
    kinds = [EntryKind.MESSAGE, EntryKind.MESSAGE, EntryKind.FACT]
    for number in range(120):
        say(
            " ".join(chance.choices(WORDS, k=chance.randint(1, 12))),
            chance.choice(kinds),
            session_id=chance.choice([None, f"session {number // 9}"]),
            speaker=chance.choice([None, "Ada", "Jon Piano"]),
        )
    questions = [" ".join(chance.sample(WORDS, 3)) for _ in range(5)]
    assert not segments_of(user)
    expected = [search(question, top_k=1000, explain=True) for question in questions]

    for first in range(1, 121, chance.randint(5, 40)):  # some of it, cut anywhere
        part = (first, min(120, first + chance.randint(0, 4)))
        lease = leased(user)
        index_maintenance._write(lease, *index_maintenance._built(lease, part))
    partly = [search(question, top_k=1000, explain=True) for question in questions]
    segments = index_all(user)
    wholly = [search(question, top_k=1000, explain=True) for question in questions]

    assert [(one.first_seq, one.last_seq) for one in segments] == [(1, 120)]
    assert partly == expected
    assert wholly == expected
