"""Searching a user's log by words and meaning."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Q
from django.db.models.expressions import RawSQL

from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry
from memory.project import Outline
from memory.recall.search import index, records
from memory.recall.search.candidates import (
    FIRST_READ,
    RankedCorpus,
    list_candidates,
    read_candidates,
)
from memory.recall.search.comparison import Comparison, describe_meaning, embed_question
from memory.recall.search.documents import NUMBERS, CorpusName
from memory.recall.search.excerpts import excerpt_of, read_passage
from memory.recall.search.followups import Question
from memory.recall.search.ranking import Corpus, Ranking, fuse, prefer_own, rank
from memory.recall.search.results import Explanation, Found, Hit, Term
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.statuses import EntryStatus, Statuses
from memory.recall.search.words import identity, number_of_words

# The maximum number of terms to search for, and of consecutive passages that don't fit into the
# word limit before the search stops.
MAX_TERMS = 100
MAX_MISSED = 100
# The maximum number of passages returned per entry.
MAX_PASSAGES = 20


def find(
    user: MemoryUser,
    question: str | Question,
    *,
    corpora: Collection[CorpusName] = tuple(CorpusName),
    top_k: int = 10,
    words: int | None = None,
    where: RawSQL | Q | None = None,
    up_to: int | None = None,
    threshold: float = 0.0,
    explain: bool = False,
    outline: Outline | None = None,
    statuses: Statuses | None = None,
    history: bool = False,
    lease: LeasedWork | None = None,
) -> Found:
    """Return the entries that best answer a question, judging by words, meaning and speakers.

    Passages are ranked, but each entry is returned only once, with its matching passages. At most
    `top_k` entries are returned, with at most `words` words in total: an entry that doesn't fit is
    skipped in favour of later entries that do. `where` comes from `filters.condition`. Entries
    after `up_to`, or with a score below `threshold`, are not returned. Only a question's first 100
    distinct terms are used, and the search stops after 100 consecutive passages that don't fit.
    Redacted entries are never found; all other entries can be. A `Question`'s completion is
    searched for as well, with less weight. `outline` is the newest version's outline; if it is not
    given, it is read. With `statuses`, hits say whether they still hold; those that don't are only
    returned with `history`, after what replaced them. `lease` is the leased work that the question
    belongs to: see `embeddings.embedder`.

    If the model fails, only words are used, and `meaning` reports the failure. Passages that only
    have an earlier model's vectors are compared by that model, if it can still be used.
    """
    question = Question(question) if isinstance(question, str) else question
    terms = _read_terms(question)
    compared = Comparison(question.meant, *embed_question(user, question.meant, lease))
    wanted = [name for name in CorpusName if name in corpora]
    read = _read_corpora(user, wanted, terms, compared, outline)
    rankings = {
        name: RankedCorpus(read[name], up_to, ranking)
        for name, ranking in _rank_corpora(read, terms, explain=explain).items()
    }
    candidates = list_candidates(rankings, threshold, max(FIRST_READ, top_k))
    lapsed = dict[int, None]()
    chosen = _choose_passages(
        read_candidates(
            user,
            candidates,
            where,
            up_to,
            statuses,
            history=history or statuses is None,
            lapsed=lapsed,
        ),
        rankings,
        top_k,
        words,
    )
    return Found(
        [_make_hit(one, rankings[one.corpus], terms, explain=explain) for one in chosen],
        terms.query_terms,
        {name.value: one.size for name, one in rankings.items()},
        describe_meaning(compared, rankings.values()),
        question,
        list(lapsed),
    )


@dataclass(frozen=True)
class _Terms:
    """The search terms, with their identities as words and as speakers' names."""

    query_terms: Sequence[str]
    identities: Sequence[int]
    weights: Mapping[int, float]
    names: Sequence[int]


def _read_terms(question: Question) -> _Terms:
    """Return a question's first distinct terms, up to the limit."""
    weights = question.weights()
    query_terms = list(weights)[:MAX_TERMS]
    return _Terms(
        query_terms,
        identities=[identity(term) for term in query_terms],
        weights={identity(term): weights[term] for term in query_terms},
        # A person named only in earlier turns does not count.
        names=[identity(SPEAKER_PREFIX + term) for term in query_terms if weights[term] == 1],
    )


def _read_corpora(
    user: MemoryUser,
    wanted: Sequence[CorpusName],
    terms: _Terms,
    compared: Comparison,
    outline: Outline | None,
) -> dict[CorpusName, Corpus]:
    """Read the wanted corpora from the user's index and compare them with the question."""
    described = (
        records.classes_described(user, terms.query_terms, outline)
        if CorpusName.FACTS in wanted
        else {}
    )
    all_terms = [*terms.identities, *terms.names, *described]
    live: dict[index.Range, Segment] = {}
    corpora = (
        index.read(user, all_terms, compared.model, with_vectors=compared.is_on, live=live)
        if terms.query_terms or compared.is_on
        else []
    )
    closeness = compared.of_all(corpora) if compared.is_on else None
    read = {name: corpus_of(corpora, NUMBERS[name], all_terms, closeness) for name in wanted}
    if archive := read.get(CorpusName.ARCHIVE):
        read[CorpusName.ARCHIVE] = replace(archive, is_conversation=True)
    if facts := read.get(CorpusName.FACTS):
        read[CorpusName.FACTS] = records.with_context(
            user, facts, terms.identities, described, live
        )
    return read


def _rank_corpora(
    read: Mapping[CorpusName, Corpus], terms: _Terms, *, explain: bool
) -> dict[CorpusName, Ranking]:
    """Rank each corpus's passages by words and, where it was compared, by meaning."""
    ranked = [
        (corpus, rank(corpus, terms.identities, terms.names, terms.weights, explain=explain))
        for corpus in read.values()
    ]
    has_meaning = any(corpus.closeness is not None for corpus in read.values())
    by_all = fuse(ranked) if has_meaning else [prefer_own(*one) for one in ranked]
    return dict(zip(read, by_all, strict=True))


@dataclass(frozen=True)
class _Chosen:
    """An entry and the positions of the passages to return with it, best first."""

    corpus: CorpusName
    entry: LogEntry
    status: EntryStatus | None
    places: list[int]


def _choose_passages(
    read: Iterable[tuple[CorpusName, int, LogEntry, EntryStatus | None]],
    rankings: Mapping[CorpusName, RankedCorpus],
    top_k: int,
    words: int | None,
) -> list[_Chosen]:
    """Choose passages in the given order, up to `top_k` entries or `words` words."""
    chosen: dict[tuple[CorpusName, int], _Chosen] = {}
    room, missed = words, 0
    for name, position, entry, status in read:
        selected = chosen.get((name, entry.seq))
        if selected is None and len(chosen) == top_k:
            break
        if selected is not None and len(selected.places) == MAX_PASSAGES:
            continue
        if room is not None:
            size = number_of_words(read_passage(entry, rankings[name].passage(position)))
            if size > room:
                missed += 1
                if missed == MAX_MISSED:
                    break
                continue
            room, missed = room - size, 0
        if selected is None:
            selected = chosen[name, entry.seq] = _Chosen(name, entry, status, [])
        selected.places.append(position)
        if room == 0:
            break
    return list(chosen.values())


def _make_hit(chosen: _Chosen, ranked: RankedCorpus, terms: _Terms, *, explain: bool) -> Hit:
    """Turn a chosen entry into a hit with the text of its passages."""
    best = chosen.places[0]
    passages = [ranked.passage(position) for position in chosen.places]
    text, is_cut = excerpt_of(chosen.entry, passages, terms.query_terms)
    return Hit(
        entry=chosen.entry,
        corpus=chosen.corpus,
        score=float(ranked.ranking.scores[best]),
        text=text,
        is_cut=is_cut,
        words=number_of_words(text),
        explanation=_explained(ranked, best, terms) if explain else None,
        status=chosen.status,
        passages=[
            (float(ranked.ranking.scores[position]), passage)
            for position, passage in zip(chosen.places, passages, strict=True)
        ],
    )


def _explained(ranked: RankedCorpus, position: int, terms: _Terms) -> Explanation:
    ranking = ranked.ranking
    shares = zip(terms.query_terms, map(ranking.shares.get, terms.identities), strict=True)
    return Explanation(
        rank=ranked.rank_of(position),
        of=ranked.size,
        speaker_named=bool(ranking.spoken[position]),
        terms=[
            Term(
                term, round(float(share.heard[position]), 4), round(float(share.score[position]), 6)
            )
            for term, share in shares
            if share is not None and share.heard[position] > 0
        ],
        meaning=0.0 if ranking.meaning is None else round(float(ranking.meaning[position]), 6),
    )
