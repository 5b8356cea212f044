"""Search by meaning, and searches whose model fails."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.recall.search import (
    announcing,
    comparison,
    excerpts,
    finding,
    index,
    index_maintenance,
    segments,
    vectors,
)
from memory.recall.search.embeddings.interface import EmbeddingFailed, Floats
from memory.recall.search.results import Meaning
from tests.integration.search.conftest import (
    Find,
    Say,
    SayAll,
    index_all,
    redact,
    segments_of,
    texts,
)
from tests.unit.search.test_embeddings import VECTORS, save
from workers import tasks

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def by_meaning(settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "wordllama"


@pytest.fixture
def life(say: Say) -> None:
    """Records of some domains, and messages."""
    for type_, data in (
        ("Medication", {"name": "Amoxicillin", "dose": "500 mg"}),
        ("Allergy", {"allergen": "penicillin", "severity": "severe"}),
        ("Address", {"city": "Lisbon", "street": "Rua Augusta 12"}),
        ("Trip", {"destination": "Bangkok", "departs_on": "2026-05-02"}),
        ("Expense", {"amount": 12, "category": "groceries"}),
    ):
        say(None, EntryKind.RECORD, data={"type": type_, "data": data}, session_id=type_)
    say("I play tennis every Tuesday", session_id="a")
    say("My sister has painted her kitchen", session_id="b")


def test_related_entry_without_a_common_word_is_found_indexed_or_not(
    eager: None, user: MemoryUser, life: None, search: Find
) -> None:
    questions = {
        "medicine": "Medication",
        "allergic": "Allergy",
        "sport": "I play tennis",
        "where does she live": "Address",
        "trip to Asia": "Trip",
    }
    live = {question: search(question) for question in questions}
    assert len(index_all(user)) == 1
    indexed = {question: search(question) for question in questions}

    for question, answer in questions.items():
        assert texts(live[question])[0].startswith(answer), question
        assert texts(indexed[question]) == texts(live[question])
        assert indexed[question].meaning.compared == 7
        assert indexed[question].meaning.model == "wordllama/l2_supercat_256"
        assert indexed[question].meaning.problem is None


def test_a_word_tells_more_than_what_is_merely_related(say: Say, search: Find) -> None:
    say("My kitten sleeps all day", session_id="a")
    say("The puppy sleeps all day", session_id="b")

    assert texts(search("Where is the puppy?"))[0] == "The puppy sleeps all day"


def test_a_threshold_leaves_out_what_has_nothing_to_do_with_it(life: None, search: Find) -> None:
    """Without a threshold even weak matches are returned.

    Otherwise paraphrases would be missed.
    """
    for unrelated in ("quantum chromodynamics lagrangian", "Where is the puppy?"):
        assert search(unrelated).hits
        assert search(unrelated, threshold=0.35).hits == []
    for related in ("medicine", "allergic", "sport", "where does she live", "trip to Asia"):
        assert search(related, threshold=0.35).hits


@pytest.mark.parametrize("question", ["", " ", "\u200b" * 3, "\ud800", "🎸" * 1000, "\x00"])
def test_a_question_without_meaning_does_no_harm(life: None, search: Find, question: str) -> None:
    found = search(question)

    assert len(found.hits) <= 7
    assert found.meaning.problem is None


def test_excerpt_of_a_long_answer_is_the_relevant_passage(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    filler = "The weather was fine and the train was late once more. "
    drug = (
        "The doctor prescribed ramipril tablets against high blood pressure, five milligrams every"
        " morning, and the pharmacist warned of side effects of the drug. "
    )
    say(filler * 30 + drug * 4 + filler * 30)

    live = search("Which medicine does she take?", words=100)
    index_all(user)
    (hit,) = search("Which medicine does she take?", words=100).hits

    assert texts(live) == [hit.text]
    assert "ramipril" in hit.text
    assert (hit.is_cut, hit.words) == (True, len(hit.text.split()))
    assert 60 <= hit.words <= 100


def test_passages_of_one_entry_are_one_hit_in_their_order(say: Say, search: Find) -> None:
    words = " ".join(f"w{number}" for number in range(600))
    say(f"the puppy {words} another puppy {words} a third puppy")

    (hit,) = search("puppy", top_k=1).hits

    places = [hit.text.index(one) for one in ("the puppy", "another puppy", "a third puppy")]
    assert places == sorted(places)
    assert hit.text.count(excerpts.GAP) >= 1
    assert hit.is_cut


def test_message_of_the_person_comes_before_the_answer(say: Say, search: Find) -> None:
    say("You could try a puppy from the shelter", role="assistant", session_id="a")
    say("You could try a puppy from the shelter", role="user", session_id="b")

    assert [hit.entry.role for hit in search("puppy").hits] == ["user", "assistant"]


def test_names_in_code_are_found_by_their_words(say: Say, search: Find, settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "off"
    data = {"type": "DrugAllergy", "data": {"knownSince": 2019, "drug_class": "penicillin"}}
    say(None, EntryKind.RECORD, data=data)

    for question in ("allergies", "which drugs", "class", "known since", "DrugAllergy"):
        assert texts(search(question)) == [
            "DrugAllergy: knownSince: 2019; drug_class: penicillin"
        ], question


# -- The model ------------------------------------------------------------------------------------


class Model:
    """A model that answers as it is told to, or fails."""

    def __init__(self, answer: Callable[[Sequence[str]], Floats], name: str = "mine") -> None:
        self.name = name
        self._answer = answer

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        return self._answer(texts)


def failing(texts: Sequence[str]) -> Floats:
    raise EmbeddingFailed("no answer in time")


def of_dimensions(number: int) -> Callable[[Sequence[str]], Floats]:
    return lambda texts: np.full((len(texts), number), number**-0.5, np.float32)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model | None], None]:
    """Use another model everywhere."""

    def do(model: Model | None) -> None:
        for module in (comparison, index_maintenance):
            monkeypatch.setattr(module, "embedder", lambda *_, **__: model)

    return do


Use = Callable[[Model | None], None]


def test_without_a_model_it_goes_by_words(say: Say, search: Find, use: Use) -> None:
    use(None)
    say("a puppy")

    assert texts(search("puppy")) == ["a puppy"]
    assert search("dog").hits == []
    assert search("dog").meaning == Meaning(None, 0, None)


def test_a_model_that_fails_leaves_the_words_and_is_named(
    eager: None, user: MemoryUser, say: Say, search: Find, use: Use
) -> None:
    use(Model(failing))
    say("a puppy")

    found = search("puppy")
    assert texts(found) == ["a puppy"]
    assert found.meaning == Meaning(None, 0, "no answer in time")

    with pytest.raises(EmbeddingFailed):
        index_all(user)
    # The words are indexed all the same, and vectors will be retried.
    assert len(segments_of(user)) == 1
    assert announcing.waiting().get().last_error == "EmbeddingFailed: no answer in time"
    assert texts(search("puppy")) == ["a puppy"]

    use(Model(of_dimensions(4)))
    SearchIndex.objects.update(run_after=timezone.now())  # its patience is over
    assert len(index_all(user)) == 1
    assert search("anything").meaning == Meaning("mine", 1, None)
    assert not announcing.waiting().exists()


def test_model_that_embeds_only_questions_leaves_words(say: Say, search: Find, use: Use) -> None:
    use(Model(lambda texts: failing(texts) if texts[0] != "puppy" else of_dimensions(4)(texts)))
    say("a puppy")

    found = search("puppy")

    assert texts(found) == ["a puppy"]
    assert found.meaning.compared == 0
    assert "searched by words only" in (found.meaning.problem or "")


def test_the_old_index_answers_until_it_is_embedded_anew(
    eager: None, user: MemoryUser, say: Say, search: Find, use: Use
) -> None:
    use(Model(of_dimensions(4), "old"))
    say("a puppy")
    say("a kitten")
    index_all(user)
    use(Model(of_dimensions(8), "new"))

    between = search("puppy")

    assert texts(between)[0] == "a puppy"
    assert between.meaning.compared == 0
    assert between.meaning.problem == (
        "2 passages were searched by words only: they have no vectors from this model yet."
    )
    # The search has requested it.
    tasks.work("indexes", user.pk)
    after = search("puppy")
    assert (after.meaning.model, after.meaning.compared) == ("new", 2)
    assert [(one.first_seq, one.last_seq) for one in segments_of(user)] == [(1, 2)]


def test_vectors_of_other_dimensions_are_as_none(
    eager: None, user: MemoryUser, say: Say, search: Find, use: Use
) -> None:
    use(Model(of_dimensions(4)))
    say("a puppy")
    index_all(user)
    use(Model(of_dimensions(8)))  # by the same name

    found = search("puppy")

    assert texts(found) == ["a puppy"]
    assert found.meaning.compared == 0


def test_segments_of_two_models_are_merged_and_embedded_anew(
    user: MemoryUser, say_all: SayAll, search: Find, use: Use
) -> None:
    use(Model(of_dimensions(4), "old"))
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    use(Model(of_dimensions(8), "new"))
    say_all(["a kitten"] * announcing.TAIL)

    (row,) = index_all(user)

    assert row.last_seq == 2 * announcing.TAIL
    assert search("dog", top_k=1).meaning.compared == 2 * announcing.TAIL


def test_a_folder_can_be_the_model(
    say: Say, search: Find, settings: Settings, tmp_path: Path
) -> None:
    settings.UAC_EMBEDDINGS = str(save(tmp_path / "tiny", {"embeddings": VECTORS}))
    say("a dog", session_id="a")
    say("a car", session_id="b")

    assert texts(search("puppy")) == ["a dog"]


def test_damaged_vectors_are_mended(user: MemoryUser, say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    (row,) = index_all(user)
    damaged = SearchBlock.objects.filter(segment=row, number=row.blocks + 1)
    assert damaged.update(data=b"\xff" * 40) == 1

    assert len(search("puppy", top_k=1000).hits) == announcing.TAIL

    index_all(user)
    (row,) = segments_of(user)
    block = SearchBlock.objects.get(segment=row, number=row.blocks + 1)
    assert vectors.kind_of(bytes(block.data)) == ("wordllama/l2_supercat_256", 256)


def test_a_redaction_takes_the_vectors_along(
    user: MemoryUser, say: Say, say_all: SayAll, search: Find
) -> None:
    secret = say("my secret kitten")
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    assert texts(search("cat", top_k=1)) == ["my secret kitten"]  # and its vector is at hand

    redact(secret)

    assert not SearchBlock.objects.filter(segment__first_seq__lte=secret.seq).exists()
    assert "my secret kitten" not in texts(search("cat", top_k=1000))
    (row,) = index_all(user)
    assert search("cat").meaning.compared == announcing.TAIL
    assert row.last_seq == announcing.TAIL + 1


def test_cached_vectors_are_not_read_again(user: MemoryUser, say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    search("dog")
    with connection.cursor() as cursor:
        cached = list(index._cache.get(user.pk))
        cursor.execute(index._READ, [user.pk, segments.VERSION, [], True, cached])
        assert len(cursor.fetchall()) == 1
        cursor.execute(index._READ, [user.pk, segments.VERSION, [], True, []])
        assert len(cursor.fetchall()) == 2


def test_no_more_vectors_are_kept_than_allowed(
    user: MemoryUser, say_all: SayAll, search: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "CACHED_BYTES", 100)
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)

    assert search("dog").meaning.compared == announcing.TAIL
    assert index._cache.get(user.pk) == {}


def test_newest_entries_of_a_long_tail_are_embedded(
    user: MemoryUser, say_all: SayAll, search: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "LIVE_CHARACTERS", 20)
    say_all(["a kitten", "a kitten", "a puppy", "a puppy"])

    found = search("dog")
    assert texts(found) == ["a puppy", "a puppy"]
    assert texts(search("kitten"))[:2] == ["a kitten", "a kitten"]
    # And it is said of the others, and a worker is asked for them
    assert (found.meaning.compared, str(found.meaning.problem)[:10]) == (2, "2 passages")
    assert SearchIndex.objects.filter(user=user, due_at__isnull=False).exists()


def test_log_of_older_server_is_reindexed(user: MemoryUser, say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * (announcing.TAIL + 1))
    index_all(user)
    SearchSegment.objects.filter(user=user).update(version=segments.VERSION - 1)

    assert len(search("dog", top_k=1000).hits) == announcing.TAIL + 1

    assert SearchIndex.objects.filter(user=user, due_at__isnull=False).exists()


def test_user_without_vectors_is_not_cached(user: MemoryUser, search: Find) -> None:
    search("dog")

    assert user.pk not in index._cache._users


def test_a_long_text_whose_every_passage_is_found_is_read_a_few_times(
    user: MemoryUser, say: Say, search: Find, django_assert_max_num_queries: Any
) -> None:
    say("the puppy sleeps in the sun and dreams of cats " * 10_000)

    with django_assert_max_num_queries(3 * finding.MAX_PASSAGES):
        (hit,) = search("puppy").hits

    assert "dreams of cats" in hit.text


def test_a_megabyte_is_searched_all_the_same(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    say("nothing of interest here " * 40_000 + " the puppy is called Toby")

    index_all(user)
    (hit,) = search("What is the dog called?", top_k=1).hits

    assert "Toby" in hit.text


def test_the_answer_says_what_meaning_did(
    api: APIClient, life: None, use: Use, settings: Settings
) -> None:
    def ask() -> dict[str, object]:
        response = api.post("/v1/users/ada/search/", {"query": "medicine", "explain": True})
        assert response.status_code == 200
        found: dict[str, object] = response.json()
        return found

    found = ask()
    assert found["meaning"] == {
        "model": "wordllama/l2_supercat_256",
        "compared": 7,
        "problem": None,
    }
    assert isinstance(found["hits"], list)
    best = found["hits"][0]
    assert best["text"].startswith("Medication")
    assert best["score"] > best["explanation"]["meaning"] > 0  # and it is about the person

    use(Model(failing))
    assert ask()["meaning"] == {"model": None, "compared": 0, "problem": "no answer in time"}
