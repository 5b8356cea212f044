"""Meaning in other languages than English: which model makes a log's vectors, and when."""

from collections.abc import Sequence

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.recall.models import SearchIndex
from memory.recall.search.embeddings import multilingual
from tests.integration.search.conftest import Find, Say, index_all, redact, texts

pytestmark = pytest.mark.django_db

STATIC = "wordllama/l2_supercat_256"
ENGLISH = ("I play tennis every Tuesday", "My sister has painted her kitchen", "We sold the boat")
GERMAN = ("Ich spiele jeden Dienstag Tennis", "Meine Schwester hat ihre Küche gestrichen")


@pytest.fixture(autouse=True)
def by_default(settings: Settings) -> None:
    settings.UAC_EMBEDDINGS = "local"


def say_each(say: Say, told: Sequence[str]) -> None:
    for number, text in enumerate(told):
        say(text, session_id=str(number))


def test_log_in_english_needs_the_static_model_alone(
    eager: None,
    user: MemoryUser,
    say: Say,
    search: Find,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multilingual, "load", None)
    say_each(say, ENGLISH)

    live = search("Which sport does she do?")
    index_all(user)
    indexed = search("Which sport does she do?")

    assert texts(live)[0] == texts(indexed)[0] == ENGLISH[0]
    assert live.meaning.model == indexed.meaning.model == STATIC
    assert not SearchIndex.objects.get(user=user).is_multilingual


def test_log_in_another_language_is_compared_by_the_multilingual_model(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    say_each(say, GERMAN)

    for question in ("Welchen Sport treibt sie?", "Which sport does she do?"):
        live = search(question)
        assert texts(live)[0] == GERMAN[0], question
        assert live.meaning.model == multilingual.NAME
    assert len(index_all(user)) == 1
    for question in ("Welchen Sport treibt sie?", "Which sport does she do?"):
        indexed = search(question)
        assert texts(indexed)[0] == GERMAN[0], question
        assert indexed.meaning.model == multilingual.NAME
        assert indexed.meaning.compared == 2


def test_question_in_another_language_has_a_log_embedded_again(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    say_each(say, ENGLISH)
    index_all(user)
    assert search("Which sport does she do?").meaning.model == STATIC

    search("Welchen Sport treibt sie?")  # requests it
    index_all(user)
    found = search("Welchen Sport treibt sie?")

    assert texts(found)[0] == ENGLISH[0]
    assert found.meaning.model == multilingual.NAME
    assert texts(search("Which sport does she do?"))[0] == ENGLISH[0]
    assert SearchIndex.objects.filter(user=user, is_multilingual=True, due_at=None).exists()


def test_redacted_log_stays_multilingual(
    eager: None, user: MemoryUser, say: Say, search: Find
) -> None:
    say(GERMAN[0], session_id="a")
    second = say(GERMAN[1], session_id="b")
    index_all(user)
    redact(second)
    index_all(user)

    assert texts(search("Welchen Sport treibt sie?")) == [GERMAN[0]]
    assert SearchIndex.objects.get(user=user).is_multilingual


def test_any_text_has_a_vector_and_symbols_have_none() -> None:
    model = multilingual.load()
    odd = ["", " ", "?!", "\ud800", "\x00", "🎸" * 1000, "e\u0301" * 5000, "字" * 20_000, "Ä", "x"]

    made = model.embed(odd)

    lengths = (made**2).sum(axis=1).round(3).tolist()
    assert lengths == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert (model.embed(odd[6:8]) == made[6:8]).all()
