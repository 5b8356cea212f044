"""Questions find entries that use other words, in each language and across languages."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from memory.recall.search import segments, vectors
from memory.recall.search.documents import NUMBERS, CorpusName, documents_of
from memory.recall.search.embeddings.interface import Embedder
from memory.recall.search.embeddings.multilingual import MultilingualEmbedder
from memory.recall.search.embeddings.static import load_wordllama
from memory.recall.search.ranking import fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity, terms
from tests.paraphrases import TEXT, Person, read_people

FIRST = 5
PEOPLE = read_people(TEXT.read_text())
ENGLISH = {person.name: person for person in PEOPLE if person.original is None}
OTHERS = [person for person in PEOPLE if person.original is not None]


def test_most_answers_are_among_the_first_five() -> None:
    model = load_wordllama()
    by_words, by_both = Counter[bool](), Counter[bool]()
    for person in ENGLISH.values():
        by_words.update(found(person, person.questions, None))
        by_both.update(found(person, person.questions, model))

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
        of_language[person.language].update(found(person, person.questions, model))

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
            [*found(person, english.questions, model), *found(english, person.questions, model)]
        )

    assert {
        language: share(one) for language, one in of_language.items() if share(one) < 0.85
    } == {}
    assert share(sum(of_language.values(), Counter())) >= 0.9


def found(person: Person, questions: Sequence[str], model: Embedder | None) -> list[bool]:
    """Return whether each question finds its entry, leaving out those that share a word with it."""
    documents = [one for entry in person.entries for one in documents_of(entry, ZoneInfo("UTC"))]
    segment = segments.build(documents)
    made = None
    if model is not None:
        made = vectors.quantised(model.name, model.embed([one.text for one in documents]))
    said = {one.seq: set(one.terms) for one in documents}
    return [
        seq in best(segment, question, model, made)
        for seq, question in enumerate(questions, 1)
        if not said[seq] & {identity(term) for term in terms(question)}
    ]


def share(of: Counter[bool]) -> float:
    return of[True] / of.total()


def best(
    segment: Segment, question: str, model: Embedder | None, made: vectors.Vectors | None
) -> list[int]:
    """Return the numbers of the best-ranked entries; without a model, rank by words alone."""
    asked = list(dict.fromkeys(terms(question)))
    identities = [identity(term) for term in asked]
    names = [identity(SPEAKER_PREFIX + term) for term in asked]
    close = [made.closeness(model.embed([question])[0])] if model and made else None
    corpora = [
        corpus_of([segment], NUMBERS[name], [*identities, *names], close) for name in CorpusName
    ]
    ranked = [(one, rank(one, identities, names, explain=False)) for one in corpora]
    rankings = fuse(ranked) if close else [prefer_own(*one) for one in ranked]
    scored = [
        (-score, seq)
        for corpus, ranking in zip(corpora, rankings, strict=True)
        for score, seq in zip(ranking.scores.tolist(), corpus.seqs.tolist(), strict=True)
        if score > 0
    ]
    return [seq for _, seq in sorted(scored)[:FIRST]]
