"""The formula."""

import numpy as np
import pytest

from memory.search.ranking import HEARD, Corpus, Postings, rank

A, B, NAME = 1, 2, 3


def corpus(*sessions: int, **postings: dict[int, int]) -> Corpus:
    """Entries of ten terms each in these sessions; `a` and `b` by place."""
    return Corpus(
        seqs=np.arange(1, len(sessions) + 1),
        lengths=np.full(len(sessions), 10.0),
        sessions=np.array(sessions, np.uint32),
        postings={
            {"a": A, "b": B, "name": NAME}[name]: Postings(
                np.array(sorted(places)), np.array([float(places[one]) for one in sorted(places)])
            )
            for name, places in postings.items()
        },
    )


def test_nothing_is_ranked_in_an_empty_corpus() -> None:
    assert rank(corpus(), [A], [NAME]).scores.tolist() == []


def test_what_has_none_of_the_terms_scores_nothing() -> None:
    assert rank(corpus(1, 2, a={0: 1}), [A], []).scores[1] == 0
    assert rank(corpus(1, 2), [A], []).scores.tolist() == [0, 0]


def test_a_word_is_heard_less_the_further_it_is_away() -> None:
    ranking = rank(corpus(*[7] * 13, a={6: 1}), [A], [])

    heard = ranking.shares[A].heard.tolist()
    assert heard[6:] == [*HEARD, 0, 0]
    assert heard[:7] == [0, 0, *reversed(HEARD)]
    assert ranking.scores.argmax() == 6


def test_nothing_is_heard_in_another_session() -> None:
    heard = rank(corpus(1, 1, 2, 1, a={1: 1}), [A], []).shares[A].heard

    assert heard.tolist() == [0.5, 1, 0, 0.25]


def test_what_is_heard_from_both_sides_adds_up() -> None:
    heard = rank(corpus(1, 1, 1, a={0: 1, 2: 4}), [A], []).shares[A].heard

    assert heard.tolist() == [2, 2.5, 4.25]


def test_a_rarer_word_counts_for_more() -> None:
    found = rank(corpus(1, 2, 3, 4, a={0: 1}, b={1: 1, 2: 1}), [A, B], []).scores

    assert found[0] > found[1] == found[2] > found[3] == 0


def test_whoever_is_named_comes_first_and_others_lose_a_third() -> None:
    unnamed = rank(corpus(1, 2, a={0: 1, 1: 1}), [A], [NAME]).scores
    named = rank(corpus(1, 2, a={0: 1, 1: 1}, name={1: 1}), [A], [NAME]).scores

    assert named[1] == unnamed[1] == unnamed[0]
    assert named[0] == pytest.approx(unnamed[0] / 1.5, abs=1e-6)


@pytest.mark.parametrize("repeated", [1, 3, 255])
def test_no_score_reaches_one(repeated: int) -> None:
    every = dict.fromkeys(range(3), repeated)
    scores = rank(corpus(1, 1, 1, a=every, b=every), [A, B], []).scores

    assert all(0 < score < 1 for score in scores)
