"""Find entries of a user's log by words."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left
from numpy.typing import NDArray

from memory.models import LogEntry, MemoryUser
from memory.search import index
from memory.search.documents import NUMBERS, CorpusName, text_of
from memory.search.ranking import Ranking, rank
from memory.search.segments import SPEAKER_PREFIX, corpus_of
from memory.search.words import best_part, identity, number_of_words, terms

# The best candidates are read from the log in groups, each so many times as large as the last one.
FIRST_READ = 16
GROWTH = 4
# So many terms are looked for, and so many hits in a row may not fit.
MOST_TERMS = 100
MOST_MISSED = 100
MOST_READ = 5000
# Number by number: as a list of numbers, the planner may rather look through the user's whole log.
_WANTED = """
SELECT e.id FROM unnest(%s::bigint[]) AS wanted (seq)
JOIN memory_logentry e ON e.user_id = %s AND e.seq = wanted.seq
"""
COLUMNS = (
    *("user_id", "seq", "kind", "occurred_at", "recorded_at", "derived_from"),
    *("data", "metadata", "session_id", "role", "speaker"),
)
# Of a long text so much is given, out of so much from its beginning.
MAX_TEXT = 10_000
MAX_TEXT_READ = 100_000


@dataclass(frozen=True)
class Term:
    """What a word of the question has to do with a hit: how often it is heard there, in the entry
    and around it, and its part of the score."""

    term: str
    heard: float
    score: float


@dataclass(frozen=True)
class Explanation:
    """Why a hit is where it is: its rank by score among all entries of its corpus, whether its
    speaker is named, and the terms."""

    rank: int
    of: int
    speaker_named: bool
    terms: Sequence[Term]


@dataclass(frozen=True)
class Hit:
    """An entry that was found, and the numbers of the entries that it rests on.

    `score` is from 0 to 1: the share of what an entry could reach that is full of all the words
    looked for. Of a long text the part with most of them is given, and `is_cut` says so.
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
class Found:
    """The hits, the best first; the terms looked for; and how many entries were ranked."""

    hits: Sequence[Hit]
    terms: Sequence[str]
    searched: Mapping[str, int]


def find(
    user: MemoryUser,
    question: str,
    *,
    corpora: Collection[CorpusName] = tuple(CorpusName),
    top_k: int = 10,
    words: int | None = None,
    where: RawSQL | Q | None = None,
    up_to: int | None = None,
    threshold: float = 0.0,
    explain: bool = False,
) -> Found:
    """Return the entries that answer a question best, by its words and what is said around them.

    At most `top_k`, and together no more than `words` words: what does not fit is left out, and
    what comes after it and fits is taken. `where` is made by `filters.condition`; entries after
    `up_to` are not found; nor is what scores less than `threshold`. A question has its first 100
    different terms, and after 100 hits in a row that do not fit none is looked for. Nothing is ever
    found that is redacted, and everything that is in the log can be.
    """
    asked = list(dict.fromkeys(terms(question)))[:MOST_TERMS]
    identities = [identity(term) for term in asked]
    names = [identity(SPEAKER_PREFIX + term) for term in asked]
    found = index.read(user, [*identities, *names]) if asked else []

    rankings = {
        name: _Ranked(corpus.seqs, up_to, rank(corpus, identities, names, explain=explain))
        for name in CorpusName
        if name in corpora
        for corpus in [corpus_of(found, NUMBERS[name], [*identities, *names])]
    }
    hits: list[Hit] = []
    room, missed = words, 0
    for name, place, entry in _read(
        user, _candidates(rankings, threshold, max(FIRST_READ, top_k)), where, up_to
    ):
        ranked = rankings[name]
        whole = text_of(entry)
        text = best_part(whole, asked, MAX_TEXT)
        size = number_of_words(text)
        if room is not None:
            if size > room:
                missed += 1
                if missed == MOST_MISSED:
                    break
                continue
            room, missed = room - size, 0
        hits.append(
            Hit(
                entry=entry,
                corpus=name,
                score=float(ranked.ranking.scores[place]),
                text=text,
                is_cut=text != whole,
                words=size,
                explanation=_explained(ranked, place, asked, identities) if explain else None,
            )
        )
        if len(hits) == top_k or room == 0:
            break
    return Found(hits, asked, {name.value: one.size for name, one in rankings.items()})


@dataclass(frozen=True)
class _Ranked:
    """The entries of a corpus by their place in it, the last that counts, and what each scores."""

    seqs: NDArray[np.int64]
    up_to: int | None
    ranking: Ranking

    @property
    def size(self) -> int:
        """So many entries count."""
        return len(self.seqs) if self.up_to is None else int((self.seqs <= self.up_to).sum())

    def rank_of(self, place: int) -> int:
        """The rank by score of the entry at a place among those that count."""
        better = self.ranking.scores > self.ranking.scores[place]
        if self.up_to is not None:
            better &= self.seqs <= self.up_to
        return 1 + int(better.sum())


_Candidate = tuple[CorpusName, int, int]


def _candidates(
    rankings: Mapping[CorpusName, _Ranked], threshold: float, size: int
) -> Iterator[list[_Candidate]]:
    """Yield the entries that score, as corpus, place and seq, the best and newest first, in groups,
    the first of this size."""
    corpora = list(rankings)
    places = [
        np.flatnonzero((one.ranking.scores > 0) & (one.ranking.scores >= threshold))
        for one in rankings.values()
    ]
    if not corpora:
        return
    pairs = list(zip(places, rankings.values(), strict=True))
    scores = np.concatenate([one.ranking.scores[here] for here, one in pairs])
    seqs = np.concatenate([one.seqs[here] for here, one in pairs])
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
    """Yield groups of indices in order. The most are rarely asked for, and sorted only then."""
    least = np.partition(scores, -size)[-size] if len(scores) > size else 0.0
    for part in (np.flatnonzero(scores >= least), np.flatnonzero(scores < least)):
        order = part[np.lexsort((-seqs[part], -scores[part]))]
        start = 0
        while start < len(order):
            yield order[start : start + size]
            start, size = start + size, max(size, min(size * GROWTH, MOST_READ))


def _read(
    user: MemoryUser,
    candidates: Iterator[list[_Candidate]],
    where: RawSQL | Q | None,
    up_to: int | None,
) -> Iterator[tuple[CorpusName, int, LogEntry]]:
    """Read the candidates from the log: those that are not redacted and may be found."""
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
    for group in candidates:
        parameters = [[seq for _, _, seq in group], user.pk]
        wanted = RawSQL(_WANTED, parameters)  # noqa: S611  # nosec B611 # a constant
        entries = {entry.seq: entry for entry in allowed.filter(pk__in=wanted)}
        for name, place, seq in group:
            if entry := entries.get(seq):
                entry.content = entry.beginning
                yield name, place, entry


def _explained(
    ranked: _Ranked, place: int, asked: Sequence[str], identities: Sequence[int]
) -> Explanation:
    ranking = ranked.ranking
    shares = zip(asked, map(ranking.shares.get, identities), strict=True)
    return Explanation(
        rank=ranked.rank_of(place),
        of=ranked.size,
        speaker_named=bool(ranking.spoken[place]),
        terms=[
            Term(term, round(float(share.heard[place]), 4), round(float(share.score[place]), 6))
            for term, share in shares
            if share is not None and share.heard[place] > 0
        ],
    )
