"""Questions find entries that use other words."""

from zoneinfo import ZoneInfo

from memory.recall.search import segments, vectors
from memory.recall.search.documents import NUMBERS, CorpusName, documents_of
from memory.recall.search.embeddings.static import StaticEmbedder, load_wordllama
from memory.recall.search.ranking import fuse, prefer_own, rank
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.words import identity, terms
from tests.paraphrases import TEXT, read_people

FIRST = 5


def test_most_answers_are_among_the_first_five() -> None:
    model = load_wordllama()
    questions = found_by_words = found = 0
    for person in read_people(TEXT.read_text()):
        documents = [
            one for entry in person.entries for one in documents_of(entry, ZoneInfo("UTC"))
        ]
        segment = segments.build(documents)
        made = vectors.quantised(model.name, model.embed([one.text for one in documents]))
        said = {one.seq: set(one.terms) for one in documents}
        for seq, question in enumerate(person.questions, 1):
            if said[seq] & {identity(term) for term in terms(question)}:
                continue
            questions += 1
            found_by_words += seq in best(segment, question, None, None)
            found += seq in best(segment, question, model, made)

    assert questions >= 200
    assert found_by_words <= 0.2 * questions
    assert found >= 0.85 * questions


def best(
    segment: Segment,
    question: str,
    model: StaticEmbedder | None,
    made: vectors.Vectors | None,
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
