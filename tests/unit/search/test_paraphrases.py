"""Questions find entries that use other words, in each language and across languages."""

from collections import Counter, defaultdict

import pytest

from memory.recall.search.embeddings.multilingual import MultilingualEmbedder
from memory.recall.search.embeddings.static import load_wordllama
from tests.paraphrases import TEXT, find_answers, read_people

PEOPLE = read_people(TEXT.read_text())
ENGLISH = {person.name: person for person in PEOPLE if person.original is None}
OTHERS = [person for person in PEOPLE if person.original is not None]


def test_most_answers_are_among_the_first_five() -> None:
    model = load_wordllama()
    by_words, by_both = Counter[bool](), Counter[bool]()
    for person in ENGLISH.values():
        by_words.update(find_answers(person, person.questions, None))
        by_both.update(find_answers(person, person.questions, model))

    assert by_both.total() >= 200
    assert share(by_words) <= 0.2
    assert share(by_both) >= 0.87


@pytest.fixture(scope="module")
def model() -> MultilingualEmbedder:
    return MultilingualEmbedder()


def test_answers_in_twelve_other_languages_are_among_the_first_five(
    model: MultilingualEmbedder,
) -> None:
    of_language: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for person in OTHERS:
        of_language[person.language].update(find_answers(person, person.questions, model))

    assert len(of_language) == 12
    assert sum(one.total() for one in of_language.values()) >= 280
    assert {language: share(one) for language, one in of_language.items() if share(one) < 0.9} == {}
    assert share(sum(of_language.values(), Counter())) >= 0.9


def test_answers_in_another_language_than_the_question_are_among_the_first_five(
    model: MultilingualEmbedder,
) -> None:
    of_language: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for person in OTHERS:
        assert person.original is not None
        english = ENGLISH[person.original]
        of_language[person.language].update(
            [
                *find_answers(person, english.questions, model),
                *find_answers(english, person.questions, model),
            ]
        )

    assert {
        language: share(one) for language, one in of_language.items() if share(one) < 0.85
    } == {}
    assert share(sum(of_language.values(), Counter())) >= 0.9


def test_questions_that_were_kept_back_find_their_answers(model: MultilingualEmbedder) -> None:
    people = {one.name: one for one in read_people(TEXT.read_text(), kept_back=True)}
    own, across = defaultdict[str, Counter[bool]](Counter), defaultdict[str, Counter[bool]](Counter)
    static = load_wordllama()
    for person in people.values():
        if person.original is None:
            own["en"].update(find_answers(person, person.questions, static))
            continue
        english = people[person.original]
        own["others"].update(find_answers(person, person.questions, model))
        across[person.language].update(find_answers(person, english.questions, model))
        across[person.language].update(find_answers(english, person.questions, model))

    assert (own["en"].total(), own["others"].total()) == (72, 12 * 24)
    assert share(own["en"]) >= 0.88
    assert share(own["others"]) >= 0.85
    assert len(across) == 12
    assert {language: share(one) for language, one in across.items() if share(one) < 0.85} == {}


def share(of: Counter[bool]) -> float:
    return of[True] / of.total()
