"""Ranking a corpus's passages for a question, with a single formula and without a database.

The score is the sum of two signals: words and meaning, i.e. how close a passage's vector is to the
question's vector. Each signal is measured relative to how much it varies between passages, because
what all passages have in common carries no information. The person's own words count for more than
others' answers, so do those of a speaker whom the question names, and a text's second-best passage
counts for less than another text's best.

The word signal is BM25 over each passage's surroundings: a word counts fully in its own passage,
half in the passages next to it, a quarter in the next ones, and so on within the same session. The
answer to a question is often found near the question's words, and a conversation's individual
entries are too short to be judged by the words they lack.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# BM25's two parameters: how quickly the weight of a term's repetitions saturates, and how much a
# passage's length matters.
SATURATION = 1.2
LENGTH = 0.75
# The weights of a word that is 0, 1, 2 … passages away.
HEARD = (1.0, 0.5, 0.25, 0.125, 0.0625)
# The bonus for an entry whose speaker is named in the question.
SPEAKER = 0.5
# In rankings by words alone, the factor for passages by anybody other than the person.
OTHERS = 0.5
# Short messages share a topic with their surroundings, so closeness carries over to adjacent
# passages, halving with every REACH characters of distance. Full-length passages of long texts
# hardly affect each other.
REACH = 150
# WORDS is the weight of words relative to meaning, OWN the bonus for the person's own words, NAMED
# that for the words of a speaker whom the question names, and AGAIN the penalty for each better
# passage in the same text, up to five. All are in standard deviations of closeness, and were tuned
# once on two sets of recorded conversations (benchmarks/retrieval.py).
WORDS = 0.9
OWN = 3.0
NAMED = 1.0
AGAIN = 1.0
# The standard deviation of just a few passages means little, so it is computed as if there were
# another USUAL_NUMBER passages with the usual deviation.
USUAL_NUMBER = 100
USUAL_CLOSENESS, USUAL_WORDS = 0.1, 0.05
# A passage that is this many standard deviations above the rest gets a score of 0.5.
HALF = 8.0


@dataclass(frozen=True)
class Postings:
    """The positions of the passages that contain a term, in order, and its count in each."""

    places: Places
    counts: Floats


@dataclass(frozen=True)
class Corpus:
    """The data for passages that are ranked together, in the order of the log."""

    seqs: NDArray[np.int64]
    lengths: Floats
    sessions: NDArray[np.uint32]
    postings: Mapping[int, Postings]
    """Keyed by term identity; the terms for speakers begin with `segments.SPEAKER_PREFIX`."""
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    is_users: NDArray[np.bool_]
    closeness: NDArray[np.float32] | None
    """Closeness to the question; None if meaning is ignored, NaN for passages without a vector."""
    is_conversation: bool = False
    """Whether neighbouring passages belong to the same conversation."""


@dataclass(frozen=True)
class Share:
    """A term's contribution to each passage: its weighted count and its part of the score."""

    heard: Floats
    score: Floats


@dataclass(frozen=True)
class Ranking:
    """The scores of all passages in a corpus, from 0 to 1, and their components."""

    scores: Floats
    spoken: NDArray[np.bool_]
    shares: Mapping[int, Share]
    meaning: Floats | None = None
    """The part of each score that is due to meaning; None for a ranking by words alone."""


def rank(
    corpus: Corpus,
    terms: Sequence[int],
    names: Sequence[int],
    weights: Mapping[int, float] | None = None,
    *,
    explain: bool = True,
) -> Ranking:
    """Score passages by the terms searched for and by whether their speaker has one of the names.

    A passage that consisted only of these terms and was said by one of these speakers would get a
    score of 1. `weights` has the weights of those terms whose weight is below 1. The terms' shares,
    which have a value for every passage in the corpus, are kept only if `explain` is set.
    """
    number = len(corpus.seqs)
    lengths = _session_totals(corpus.lengths, corpus.sessions)
    average = lengths.mean() if number else 1.0
    damping = SATURATION * (1 - LENGTH + LENGTH * lengths / max(average, 1.0))
    counts = weights or {}
    rarities = {term: _rarity(corpus, term) * counts.get(term, 1.0) for term in terms}
    most = sum(rarities.values()) * (SATURATION + 1) or 1.0

    spoken = np.zeros(number, dtype=np.bool_)
    for name in names:
        if postings := corpus.postings.get(name):
            spoken[postings.places] = True
    factor = np.where(spoken | ~spoken.any(), 1.0, 1 / (1 + SPEAKER)) / most

    shares = {}
    scores = np.zeros(number)
    for term, weight in rarities.items():
        if postings := corpus.postings.get(term):
            heard = _heard(postings.places, postings.counts, corpus.sessions)
            score = factor * weight * heard * (SATURATION + 1) / (heard + damping)
            scores += score
            if explain:
                shares[term] = Share(heard, score)
    return Ranking(np.round(scores, 6), spoken, shares)


def prefer_own(corpus: Corpus, ranking: Ranking) -> Ranking:
    """Return the ranking by words with more weight given to the person's own words."""
    own = corpus.is_users
    factor = np.where(own | ~own.any(), 1.0, OTHERS)
    shares = {term: Share(one.heard, one.score * factor) for term, one in ranking.shares.items()}
    return replace(ranking, scores=np.round(ranking.scores * factor, 6), shares=shares)


def fuse(ranked: Sequence[tuple[Corpus, Ranking]]) -> list[Ranking]:
    """Return the rankings with meaning and the bonuses for the person and named speakers added.

    The new scores are on a different scale: 0.5 means `HALF` standard deviations above the rest.
    """
    close = [_close(corpus) for corpus, _ in ranked]
    by_closeness = deviation_of(close, USUAL_CLOSENESS)
    by_words = deviation_of([ranking.scores for _, ranking in ranked], USUAL_WORDS) / WORDS
    return [
        _fused(corpus, ranking, near / by_closeness, ranking.scores / by_words)
        for (corpus, ranking), near in zip(ranked, close, strict=True)
    ]


def _fused(corpus: Corpus, ranking: Ranking, meaning: Floats, words: Floats) -> Ranking:
    assert corpus.closeness is not None
    # There is no higher threshold, because one in five answers that share no words with their
    # question has a closeness below 0.12 (tests/paraphrases.txt).
    is_found = (words > 0) | (np.nan_to_num(corpus.closeness) > 0)
    total = meaning + words + OWN * corpus.is_users + NAMED * ranking.spoken
    total -= AGAIN * np.minimum(_earlier(corpus.seqs, total), 5)
    total = np.where(is_found, np.maximum(total, 0.01), 0.0)
    scores = total / (total + HALF)
    # Multiplied by this factor, a signal becomes its part of the score; the rest of the score is
    # due to OWN, NAMED and AGAIN.
    unit = 1 / (total + HALF)
    shares = {
        term: Share(one.heard, one.score / np.maximum(ranking.scores, 1e-6) * words * unit)
        for term, one in ranking.shares.items()
    }
    return Ranking(np.round(scores, 6), ranking.spoken, shares, meaning * unit)


def _close(corpus: Corpus) -> Floats:
    """Return each passage's closeness, to which nearby passages contribute in conversations."""
    assert corpus.closeness is not None
    near = corpus.closeness.astype(np.float64)
    # A passage without a vector gets the mean rather than 0, because for some models, all texts are
    # close to each other.
    is_unknown = np.isnan(near)
    if is_unknown.any():
        near[is_unknown] = near[~is_unknown].mean() if not is_unknown.all() else 0.0
    if not corpus.is_conversation:
        return near
    ends = np.cumsum(corpus.ends.astype(np.int64) - corpus.begins)
    middles = (ends + np.append(0, ends[:-1])) / 2
    heard = near.copy()
    for distance in range(1, len(HEARD)):
        apart = middles[distance:] - middles[:-distance]
        same = corpus.sessions[distance:] == corpus.sessions[:-distance]
        weight = same * np.exp2(-np.maximum(apart, 1) / REACH)
        heard[distance:] += weight * near[:-distance]
        heard[:-distance] += weight * near[distance:]
    return heard


def deviation_of(signals: Sequence[Floats], usual: float) -> float:
    """Return a signal's standard deviation, which is close to `usual` if there are few passages."""
    values = np.concatenate(signals)
    squares = float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
    whole = squares + USUAL_NUMBER * usual**2
    return math.sqrt(whole / (len(values) + USUAL_NUMBER))


def _earlier(seqs: NDArray[np.int64], scores: Floats) -> Places:
    """Return, for each passage, how many passages of the same entry have a higher score."""
    order = np.lexsort((-scores, seqs))
    places = np.arange(len(order))
    is_first = np.append(True, seqs[order][1:] != seqs[order][:-1])[: len(order)]
    firsts = np.maximum.accumulate(np.where(is_first, places, 0))
    earlier = np.empty(len(order), np.int64)
    earlier[order] = places - firsts
    return earlier


def _rarity(corpus: Corpus, term: int) -> float:
    """Return a term's BM25 weight, which is highest for a term that doesn't occur at all."""
    postings = corpus.postings.get(term)
    having = len(postings.places) if postings else 0
    return math.log(1 + (len(corpus.seqs) - having + 0.5) / (having + 0.5))


def _heard(places: Places, amounts: Floats, sessions: NDArray[np.uint32]) -> Floats:
    """Return, for each position, the sum of amounts there and nearby, weighted by distance."""
    heard = np.zeros(len(sessions))
    heard[places] = amounts
    for distance, weight in enumerate(HEARD[1:], 1):
        for here, there in _apart(places, distance, len(sessions)):
            same = sessions[places[here]] == sessions[there]
            # Each position occurs only once, so += doesn't lose any amounts.
            heard[there[same]] += weight * amounts[here][same]
    return heard


def _session_totals(amounts: Floats, sessions: NDArray[np.uint32]) -> Floats:
    """Like `_heard`, but for amounts at every position."""
    heard = amounts.copy()
    for distance, weight in enumerate(HEARD[1:], 1):
        same = weight * (sessions[distance:] == sessions[:-distance])
        heard[distance:] += same * amounts[:-distance]
        heard[:-distance] += same * amounts[distance:]
    return heard


def _apart(places: Places, distance: int, number: int) -> Iterator[tuple[slice, Places]]:
    """Yield the positions with a neighbour at this distance, and the neighbours' positions.

    Later neighbours are yielded first, then earlier ones.
    """
    last = int(np.searchsorted(places, number - distance))
    yield slice(0, last), places[:last] + distance
    first = int(np.searchsorted(places, distance))
    yield slice(first, None), places[first:] - distance
