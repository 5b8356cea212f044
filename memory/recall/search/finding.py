"""Searches of a user's log by words and meaning."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import structlog
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left, Substr
from numpy.typing import NDArray

from memory.database import timeouts
from memory.models import LogEntry, MemoryUser
from memory.models.log import EntryKind
from memory.project import Outline
from memory.recall.search import embeddings, index, records
from memory.recall.search.documents import NUMBERS, CorpusName, text_of
from memory.recall.search.embeddings import embedder
from memory.recall.search.embeddings.interface import Embedder, EmbeddingFailed
from memory.recall.search.followups import REFERENT, Question
from memory.recall.search.passages import Passage
from memory.recall.search.ranking import (
    USUAL_CLOSENESS,
    Corpus,
    Ranking,
    deviation_of,
    fuse,
    prefer_own,
    rank,
)
from memory.recall.search.segments import SPEAKER_PREFIX, Segment, corpus_of
from memory.recall.search.vectors import Floats
from memory.recall.search.words import best_part, identity, number_of_words

logger = structlog.get_logger(__name__)

# Between passages of a text that do not follow each other.
GAP = "… "
# The best candidates are read from the log in groups, each this many times larger than the last.
FIRST_READ = 16
GROWTH = 4
# Limits on the terms that are looked for, and on the hits in a row that may not fit.
MAX_TERMS = 100
MAX_MISSED = 100
MAX_READ = 5000
# Number by number: given a list of numbers, the planner might scan the user's whole log.
_WANTED = """
SELECT e.id FROM unnest(%s::bigint[]) AS wanted (seq)
JOIN memory_logentry e ON e.user_id = %s AND e.seq = wanted.seq
"""
COLUMNS = (
    *("user_id", "seq", "kind", "occurred_at", "recorded_at", "derived_from"),
    *("data", "metadata", "session_id", "role", "speaker"),
)
# The characters that are returned of a long text, and those that are read from its beginning.
MAX_TEXT = 10_000
MAX_TEXT_READ = 100_000
# The passages returned of an entry, and the length up to which text between two passages is empty.
MAX_PASSAGES = 20
SHORT_GAP = 2
# The results of two models are put on one scale if each has compared this many passages.
MIN_COMPARABLE = 32


@dataclass(frozen=True)
class Term:
    """The contribution of a word of the question to a hit.

    `heard` is how often it occurs in the entry and, with less weight, around it; `score` is its
    part of the score.
    """

    term: str
    heard: float
    score: float


@dataclass(frozen=True)
class Explanation:
    """An explanation of a hit's position.

    It has the rank of its best passage among the entries of its corpus, whether its speaker is
    named in the question, the terms, and the part of the score that meaning has.
    """

    rank: int
    of: int
    speaker_named: bool
    terms: Sequence[Term]
    meaning: float


@dataclass(frozen=True)
class Hit:
    """An entry that was found, and the numbers of the entries that it rests on.

    `score`, from 0 to 1, is that of its best passage. Of a long text only the matching passages are
    returned, and `is_cut` is set.
    """

    entry: LogEntry
    corpus: CorpusName
    score: float
    text: str
    is_cut: bool
    words: int
    explanation: Explanation | None

    @property
    def rests_on(self) -> list[int]:
        """The entry itself, and those that it was derived from."""
        return [self.entry.seq, *self.entry.derived_from]


@dataclass(frozen=True)
class Meaning:
    """The model that compared meanings, the number of passages compared, and the problem, if any.

    While segments of an earlier model are left, both models are named.
    """

    model: str | None
    compared: int
    problem: str | None


@dataclass(frozen=True)
class Found:
    """The result of a search.

    It has the hits, best first; the terms looked for; the number of entries ranked; the part that
    meaning had; and the question, as it was completed.
    """

    hits: Sequence[Hit]
    terms: Sequence[str]
    searched: Mapping[str, int]
    meaning: Meaning
    question: Question


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
) -> Found:
    """Return the entries that answer a question best, by words, by meaning and by their speakers.

    Passages are ranked; an entry is returned once, with its matching passages. At most `top_k`
    entries are returned, with no more than `words` words together: an entry that does not fit is
    left out, and later ones that fit are taken. `where` is made by `filters.condition`; entries
    after `up_to` or with a score below `threshold` are not returned. The first 100 different terms
    of a question are used, and after 100 entries in a row that do not fit the search stops.
    Redacted entries are never found, and all others can be. The completion of a `Question` is
    looked for, too, with less weight. `outline` is that of the newest version, which is read if not
    given.

    If the model fails, only words are used, and `meaning` says so. Passages that have only an
    earlier model's vectors are compared by that model, if it can be used.
    """
    question = Question(question) if isinstance(question, str) else question
    terms = _read_terms(question)
    compared = _Comparison(user, question.meant, *_embedded(user, question.meant))
    wanted = [name for name in CorpusName if name in corpora]
    read = _read_corpora(user, wanted, terms, compared, outline)
    rankings = {
        name: _Ranked(read[name], up_to, ranking)
        for name, ranking in _rank_corpora(read, terms, explain=explain).items()
    }
    candidates = _candidates(rankings, threshold, max(FIRST_READ, top_k))
    chosen = _choose_passages(_read(user, candidates, where, up_to), rankings, top_k, words)
    return Found(
        [_make_hit(one, rankings[one.corpus], terms, explain=explain) for one in chosen],
        terms.asked,
        {name.value: one.size for name, one in rankings.items()},
        _meaning(compared, rankings.values()),
        question,
    )


@dataclass(frozen=True)
class _Terms:
    """The terms looked for, their identities and weights, and the identities of speakers' names."""

    asked: Sequence[str]
    identities: Sequence[int]
    weights: Mapping[int, float]
    names: Sequence[int]


def _read_terms(question: Question) -> _Terms:
    """Return the first terms of a question."""
    weights = question.weights()
    asked = list(weights)[:MAX_TERMS]
    return _Terms(
        asked,
        identities=[identity(term) for term in asked],
        weights={identity(term): weights[term] for term in asked},
        # Not whoever else was named before the question, but of whom a pronoun in it speaks.
        names=[identity(SPEAKER_PREFIX + term) for term in asked if weights[term] >= REFERENT],
    )


def _read_corpora(
    user: MemoryUser,
    wanted: Sequence[CorpusName],
    terms: _Terms,
    compared: "_Comparison",
    outline: Outline | None,
) -> dict[CorpusName, Corpus]:
    """Read the wanted corpora from the user's index, each compared with the question."""
    described = (
        records.classes_described(user, terms.asked, outline) if CorpusName.FACTS in wanted else {}
    )
    all_terms = [*terms.identities, *terms.names, *described]
    live: dict[index.Range, Segment] = {}
    found = (
        index.read(user, all_terms, compared.model, with_vectors=compared.is_on, live=live)
        if terms.asked or compared.is_on
        else []
    )
    closeness = compared.of_all(found) if compared.is_on else None
    read = {name: corpus_of(found, NUMBERS[name], all_terms, closeness) for name in wanted}
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
    """Rank the passages of each corpus by words, and by meaning where it was compared."""
    ranked = [
        (corpus, rank(corpus, terms.identities, terms.names, terms.weights, explain=explain))
        for corpus in read.values()
    ]
    has_meaning = any(corpus.closeness is not None for corpus in read.values())
    by_all = fuse(ranked) if has_meaning else [prefer_own(*one) for one in ranked]
    return dict(zip(read, by_all, strict=True))


@dataclass(frozen=True)
class _Chosen:
    """An entry, and the places of those of its passages that are returned, the best first."""

    corpus: CorpusName
    entry: LogEntry
    places: list[int]


def _choose_passages(
    read: Iterable[tuple[CorpusName, int, LogEntry]],
    rankings: Mapping[CorpusName, "_Ranked"],
    top_k: int,
    words: int | None,
) -> list[_Chosen]:
    """Choose passages in this order until there are `top_k` entries or no room for more words."""
    chosen: dict[tuple[CorpusName, int], _Chosen] = {}
    room, missed = words, 0
    for name, place, entry in read:
        known = chosen.get((name, entry.seq))
        if known is None and len(chosen) == top_k:
            break
        if known is not None and len(known.places) == MAX_PASSAGES:
            continue
        if room is not None:
            size = number_of_words(_passage(entry, rankings[name].passage(place)))
            if size > room:
                missed += 1
                if missed == MAX_MISSED:
                    break
                continue
            room, missed = room - size, 0
        if known is None:
            known = chosen[name, entry.seq] = _Chosen(name, entry, [])
        known.places.append(place)
        if room == 0:
            break
    return list(chosen.values())


def _make_hit(chosen: _Chosen, ranked: "_Ranked", terms: _Terms, *, explain: bool) -> Hit:
    """Return a chosen entry as a hit, with the text of its passages."""
    best = chosen.places[0]
    passages = [ranked.passage(place) for place in chosen.places]
    text, is_cut = _text(chosen.entry, passages, terms.asked)
    return Hit(
        entry=chosen.entry,
        corpus=chosen.corpus,
        score=float(ranked.ranking.scores[best]),
        text=text,
        is_cut=is_cut,
        words=number_of_words(text),
        explanation=_explained(ranked, best, terms) if explain else None,
    )


def _embedded(user: MemoryUser, question: str) -> tuple[Embedder | None, Floats | None, str | None]:
    """Return the model and its vector of the question, or the problem."""
    try:
        model = embedder(user, hurried=True)
        if model is None:
            return None, None, None
        (vector,) = model.embed([question], is_question=True)
    except EmbeddingFailed as error:
        logger.warning("search_by_words_alone", error=str(error))
        return None, None, str(error)
    # A question without tokens is close to nothing.
    return (model, vector, None) if vector.any() else (None, None, None)


class _Comparison:
    """The comparison of a question with passages, each by the model that made its vector.

    An earlier model is called once, when the first of its vectors is met.
    """

    def __init__(
        self,
        user: MemoryUser,
        question: str,
        model: Embedder | None,
        vector: Floats | None,
        problem: str | None,
    ) -> None:
        self._user, self._question = user, question
        self._questions: dict[str, Floats | None] = {}
        if model is not None:
            self._questions[model.name] = vector
        self.model, self.problem = model, problem
        # By name, how many passages each model has compared.
        self.models: dict[str, int] = {}
        self.mismatch = ""

    @property
    def is_on(self) -> bool:
        """Whether meaning is to be compared: a model answers, or has just failed."""
        return self.model is not None or self.problem is not None

    def of_all(self, found: Sequence[Segment]) -> list[Floats] | None:
        """Return the closeness of the passages of each segment, NaN if it is unknown.

        None if the model failed and no other has compared any.
        """
        closeness = [self._of(segment) for segment in found]
        for segment, close in zip(found, closeness, strict=True):
            if number := int(np.isfinite(close).sum()):
                assert segment.vectors is not None
                name = segment.vectors.model
                self.models[name] = self.models.get(name, 0) + number
        if len(self.models) > 1:
            _put_on_one_scale(
                [one.vectors.model if one.vectors else "" for one in found], closeness, self.models
            )
        return closeness if self.models or self.model is not None else None

    def _of(self, segment: Segment) -> Floats:
        unknown = np.full(len(segment.seqs), np.nan, np.float32)
        held = segment.vectors
        if held is None:
            return unknown
        if not held.dimensions:  # made of texts without words
            return np.zeros(len(segment.seqs), np.float32)
        if (vector := self._ask(held.model)) is None:
            return unknown
        if held.dimensions != len(vector):
            self.mismatch = (
                f"vectors of {held.dimensions} numbers, and {held.model} answers with"
                f" {len(vector)}: set UAC_EMBEDDINGS_DIMENSIONS"
            )
            return unknown
        return held.closeness(vector)

    def _ask(self, name: str) -> Floats | None:
        if name not in self._questions:
            self._questions[name] = None
            try:
                if earlier := embeddings.find_earlier(name, self._user):
                    (vector,) = earlier.embed([self._question], is_question=True)
                    self._questions[name] = vector
            except EmbeddingFailed as error:
                logger.warning("earlier_model_not_asked", model=name, error=str(error))
        return self._questions[name]


def _put_on_one_scale(
    names: Sequence[str], closeness: list[Floats], models: Mapping[str, int]
) -> None:
    """Scale each model's closeness to the mean and deviation of the model with most passages.

    A cosine of 0.7 is high for one model and meaningless for another.
    """
    measures = {}
    for name in models:
        parts = [one for of, one in zip(names, closeness, strict=True) if of == name]
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if len(values) >= MIN_COMPARABLE:
            measures[name] = (
                values.mean(),
                deviation_of([values.astype(np.float64)], USUAL_CLOSENESS),
            )
    if len(measures) < 2:
        return
    mean, deviation = measures[max(measures, key=lambda name: models[name])]
    for place, name in enumerate(names):
        if name in measures:
            own_mean, own_deviation = measures[name]
            scaled = (closeness[place] - own_mean) / own_deviation * deviation + mean
            closeness[place] = scaled.astype(np.float32)


def _meaning(compared: _Comparison, rankings: Collection["_Ranked"]) -> Meaning:
    problem = compared.problem
    close = [one.corpus.closeness for one in rankings if one.corpus.closeness is not None]
    number = sum(int(np.isfinite(one).sum()) for one in close)
    if missing := sum(len(one) for one in close) - number:
        why = compared.mismatch or "no vectors of this model yet"
        problem = (
            f"{problem} {missing} passages are found by words alone."
            if problem
            else f"{missing} passages have {why}: found by words alone."
        )
    return Meaning(_names(compared, close), number, problem)


def _names(compared: _Comparison, close: Sequence[Floats]) -> str | None:
    """Return the models, that with the most passages first; if none has any, the one that could."""
    if not close:
        return None
    by_number = sorted(compared.models, key=lambda name: -compared.models[name])
    answering = compared.model.name if compared.model is not None else None
    return " and ".join(by_number) or answering


def _passage(entry: LogEntry, passage: Passage) -> str:
    """Return the text of a passage; far into a very long text it is read from the log."""
    start, end = passage
    if entry.kind == EntryKind.RECORD or end <= MAX_TEXT_READ:
        return text_of(entry)[start:end]
    said = LogEntry.objects.filter(pk=entry.pk).annotate(
        passage=Substr("content", start + 1, end - start)
    )
    # The user may be erased meanwhile.
    return said.values_list("passage", flat=True).first() or ""


def _text(entry: LogEntry, passages: Sequence[Passage], asked: Sequence[str]) -> tuple[str, bool]:
    """Return the text of an entry's passages, in order, and whether that is only a part of it."""
    parts: list[Passage] = []
    for start, end in sorted(passages):
        # Consecutive passages have only spaces between them.
        if parts and _is_empty(entry, (parts[-1][1], start)):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    text = GAP.join(_passage(entry, part) for part in parts)
    given = best_part(text, asked, MAX_TEXT)
    whole = len(parts) == 1 and parts[0][0] == 0 and len(text_of(entry)) <= parts[0][1]
    return given, given != text or not whole


def _is_empty(entry: LogEntry, gap: Passage) -> bool:
    """Tell whether the text between two passages is empty; a very short one counts as empty."""
    return gap[1] - gap[0] <= SHORT_GAP or not _passage(entry, gap).strip()


@dataclass(frozen=True)
class _Ranked:
    """The passages of a corpus, the last entry that may be found, and the score of each passage."""

    corpus: Corpus
    up_to: int | None
    ranking: Ranking

    @cached_property
    def size(self) -> int:
        """The number of entries that may be found."""
        return len(np.unique(self.corpus.seqs[self._counts]))

    def passage(self, place: int) -> Passage:
        """Return the position of a passage in its entry's text."""
        return int(self.corpus.begins[place]), int(self.corpus.ends[place])

    def rank_of(self, place: int) -> int:
        """Return the rank of a passage by score among the entries that may be found."""
        better = np.searchsorted(self._best, self.ranking.scores[place], side="right")
        return 1 + len(self._best) - int(better)

    @cached_property
    def _counts(self) -> NDArray[np.bool_]:
        """A mask of the passages whose entries may be found."""
        if self.up_to is None:
            return np.ones(len(self.corpus.seqs), np.bool_)
        return self.corpus.seqs <= self.up_to

    @cached_property
    def _best(self) -> NDArray[np.float64]:
        """The score of each entry's best passage, ascending, for entries that may be found."""
        seqs, scores = self.corpus.seqs[self._counts], self.ranking.scores[self._counts]
        order = np.lexsort((scores, seqs))
        is_last = np.diff(seqs[order], append=0) != 0
        return np.sort(scores[order][is_last])


_Candidate = tuple[CorpusName, int, int]


def _candidates(
    rankings: Mapping[CorpusName, _Ranked], threshold: float, size: int
) -> Iterator[list[_Candidate]]:
    """Yield groups of entries with a score (corpus, place and seq), best and newest first.

    The first group has this size.
    """
    corpora = list(rankings)
    places = [
        np.flatnonzero((one.ranking.scores > 0) & (one.ranking.scores >= threshold))
        for one in rankings.values()
    ]
    if not corpora:
        return
    pairs = list(zip(places, rankings.values(), strict=True))
    scores = np.concatenate([one.ranking.scores[here] for here, one in pairs])
    seqs = np.concatenate([one.corpus.seqs[here] for here, one in pairs])
    numbers = np.repeat(np.arange(len(corpora)), [len(here) for here in places])
    everywhere = np.concatenate(places)
    for group in _best_first(scores, seqs, size):
        yield [
            (corpora[number], place, seq)
            for number, place, seq in zip(
                numbers[group].tolist(),
                everywhere[group].tolist(),
                seqs[group].tolist(),
                strict=True,
            )
        ]


def _best_first(
    scores: NDArray[np.float64], seqs: NDArray[np.int64], size: int
) -> Iterator[NDArray[np.int64]]:
    """Yield groups of indices in order. Most are rarely needed, and are sorted only then."""
    least = np.partition(scores, -size)[-size] if len(scores) > size else 0.0
    for part in (np.flatnonzero(scores >= least), np.flatnonzero(scores < least)):
        order = part[np.lexsort((-seqs[part], -scores[part]))]
        start = 0
        while start < len(order):
            yield order[start : start + size]
            start, size = start + size, max(size, min(size * GROWTH, MAX_READ))


def _read(
    user: MemoryUser,
    candidates: Iterator[list[_Candidate]],
    where: RawSQL | Q | None,
    up_to: int | None,
) -> Iterator[tuple[CorpusName, int, LogEntry]]:
    """Read the candidates from the log: those that are not redacted and pass the filter.

    A filter that excludes nearly everything makes it read the whole log; if that takes longer than
    one statement may, it raises an error that `database.took_too_long` recognises.
    """
    allowed = (
        LogEntry.objects.filter(redacted_at=None)
        .order_by()
        .only(*COLUMNS)
        .annotate(beginning=Left("content", MAX_TEXT_READ))
    )
    if up_to is not None:
        allowed = allowed.filter(seq__lte=up_to)
    if where is not None:
        allowed = allowed.filter(where)
    known: dict[int, LogEntry | None] = {}
    began = time.monotonic()
    for group in candidates:
        if unknown := [seq for seq in {seq for _, _, seq in group} if seq not in known]:
            if known:
                timeouts.refuse_after(began)
            wanted = RawSQL(_WANTED, [unknown, user.pk])  # noqa: S611  # nosec B611 # a constant
            found = {entry.seq: entry for entry in allowed.filter(pk__in=wanted)}
            for entry in found.values():
                entry.content = entry.beginning
            known |= {seq: found.get(seq) for seq in unknown}
        for name, place, seq in group:
            if (wanted_entry := known[seq]) is not None:
                yield name, place, wanted_entry


def _explained(ranked: _Ranked, place: int, terms: _Terms) -> Explanation:
    ranking = ranked.ranking
    shares = zip(terms.asked, map(ranking.shares.get, terms.identities), strict=True)
    return Explanation(
        rank=ranked.rank_of(place),
        of=ranked.size,
        speaker_named=bool(ranking.spoken[place]),
        terms=[
            Term(term, round(float(share.heard[place]), 4), round(float(share.score[place]), 6))
            for term, share in shares
            if share is not None and share.heard[place] > 0
        ],
        meaning=0.0 if ranking.meaning is None else round(float(ranking.meaning[place]), 6),
    )
