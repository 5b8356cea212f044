"""How well the entries of a corpus answer a question: one formula, without a database.

It is BM25 over what is heard around each entry: a word counts fully where it stands, and half, a
quarter … at the entries next to it in the same session. What answers a question is often said
beside its words, and single entries of a conversation are too short to judge by what they lack.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# BM25's own two: how fast repetition stops counting, and how much length does.
SATURATION = 1.2
LENGTH = 0.75
# How much of a word is heard so many entries away.
HEARD = (1.0, 0.5, 0.25, 0.125, 0.0625)
# An entry whose speaker is named in the question counts so much more.
SPEAKER = 0.5


@dataclass(frozen=True)
class Postings:
    """Where a term stands: entries by their place in the corpus, ascending, and how often."""

    places: Places
    counts: Floats


@dataclass(frozen=True)
class Corpus:
    """What is to be known of the entries that are ranked together, in the order of the log."""

    seqs: NDArray[np.int64]
    lengths: Floats
    sessions: NDArray[np.uint32]
    postings: Mapping[int, Postings]
    """By identity of the term; those of speakers' names by `segments.SPEAKER_PREFIX` and it."""


@dataclass(frozen=True)
class Share:
    """What one term contributes: at every place how much it is heard, and its part of the score."""

    heard: Floats
    score: Floats


@dataclass(frozen=True)
class Ranking:
    """The score of every entry of a corpus, 0 to 1, and what it is made of."""

    scores: Floats
    spoken: NDArray[np.bool_]
    shares: Mapping[int, Share]


def rank(
    corpus: Corpus, terms: Sequence[int], names: Sequence[int], *, explain: bool = True
) -> Ranking:
    """Score the entries by the terms looked for, and by whose speaker has one of these names.

    1 would be an entry that is full of all the terms, said by whoever is named. The shares of the
    terms, each as large as the corpus, are kept to `explain` alone.
    """
    number = len(corpus.seqs)
    lengths = _heard_of_all(corpus.lengths, corpus.sessions)
    average = lengths.mean() if number else 1.0
    damping = SATURATION * (1 - LENGTH + LENGTH * lengths / max(average, 1.0))
    weights = {term: _rarity(corpus, term) for term in terms}
    most = sum(weights.values()) * (SATURATION + 1) or 1.0

    spoken = np.zeros(number, dtype=np.bool_)
    for name in names:
        if found := corpus.postings.get(name):
            spoken[found.places] = True
    factor = np.where(spoken | ~spoken.any(), 1.0, 1 / (1 + SPEAKER)) / most

    shares = {}
    scores = np.zeros(number)
    for term, weight in weights.items():
        if found := corpus.postings.get(term):
            heard = _heard(found.places, found.counts, corpus.sessions)
            score = factor * weight * heard * (SATURATION + 1) / (heard + damping)
            scores += score
            if explain:
                shares[term] = Share(heard, score)
    return Ranking(np.round(scores, 6), spoken, shares)


def _rarity(corpus: Corpus, term: int) -> float:
    """BM25's weight of a term; of one that stands nowhere it is the largest."""
    found = corpus.postings.get(term)
    having = len(found.places) if found else 0
    return math.log(1 + (len(corpus.seqs) - having + 0.5) / (having + 0.5))


def _heard(places: Places, amounts: Floats, sessions: NDArray[np.uint32]) -> Floats:
    """Sum up the amounts at these places as they are heard at every place."""
    heard = np.zeros(len(sessions))
    heard[places] = amounts
    for distance, weight in enumerate(HEARD[1:], 1):
        for here, there in _apart(places, distance, len(sessions)):
            same = sessions[places[here]] == sessions[there]
            # Each place is named once, so that += adds to all of them.
            heard[there[same]] += weight * amounts[here][same]
    return heard


def _heard_of_all(amounts: Floats, sessions: NDArray[np.uint32]) -> Floats:
    """The same of amounts at every place."""
    heard = amounts.copy()
    for distance, weight in enumerate(HEARD[1:], 1):
        same = weight * (sessions[distance:] == sessions[:-distance])
        heard[distance:] += same * amounts[:-distance]
        heard[:-distance] += same * amounts[distance:]
    return heard


def _apart(places: Places, distance: int, number: int) -> Iterator[tuple[slice, Places]]:
    """Those of the places that have one so far after, or before, them; and that one."""
    last = int(np.searchsorted(places, number - distance))
    yield slice(0, last), places[:last] + distance
    first = int(np.searchsorted(places, distance))
    yield slice(first, None), places[first:] - distance
