"""The ranking formula."""

from dataclasses import replace

import numpy as np
import pytest

from memory.recall.search.ranking import (
    HEARD,
    OTHERS,
    Corpus,
    Postings,
    Ranking,
    fuse,
    prefer_own,
    rank,
)

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
        begins=np.zeros(len(sessions), np.uint32),
        ends=np.zeros(len(sessions), np.uint32),
        is_users=np.zeros(len(sessions), np.bool_),
        closeness=None,
    )


def test_nothing_is_ranked_in_an_empty_corpus() -> None:
    assert rank(corpus(), [A], [NAME]).scores.tolist() == []


def test_a_term_that_counts_for_less_scores_less() -> None:
    two = corpus(1, 2, a={0: 1}, b={1: 1})

    as_asked = rank(two, [A, B], []).scores
    weighted = rank(two, [A, B], [], {B: 0.5}).scores

    assert as_asked[0] == as_asked[1]
    assert weighted[1] == pytest.approx(weighted[0] / 2, rel=1e-4)
    # Where nothing else is looked for, it is all that there is.
    assert rank(two, [B], [], {B: 0.5}).scores[1] == rank(two, [B], []).scores[1]


def test_entry_without_the_terms_scores_nothing() -> None:
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


def test_scores_of_neighbours_on_both_sides_add_up() -> None:
    heard = rank(corpus(1, 1, 1, a={0: 1, 2: 4}), [A], []).shares[A].heard

    assert heard.tolist() == [2, 2.5, 4.25]


def test_a_rarer_word_counts_for_more() -> None:
    found = rank(corpus(1, 2, 3, 4, a={0: 1}, b={1: 1, 2: 1}), [A, B], []).scores

    assert found[0] > found[1] == found[2] > found[3] == 0


def test_named_speaker_comes_first_and_others_lose_a_third() -> None:
    unnamed = rank(corpus(1, 2, a={0: 1, 1: 1}), [A], [NAME]).scores
    named = rank(corpus(1, 2, a={0: 1, 1: 1}, name={1: 1}), [A], [NAME]).scores

    assert named[1] == unnamed[1] == unnamed[0]
    assert named[0] == pytest.approx(unnamed[0] / 1.5, abs=1e-6)


def close(*closeness: float, **postings: dict[int, int]) -> Corpus:
    """Entries that are this close to the question."""
    entries = corpus(*range(len(closeness)), **postings)
    return replace(entries, closeness=np.array(closeness, np.float32))


def fused(entries: Corpus) -> Ranking:
    (ranking,) = fuse([(entries, rank(entries, [A], []))])
    return ranking


def test_related_entry_scores_without_a_common_word() -> None:
    scores = fused(close(0.8, 0.4, 0.0, -0.5)).scores

    assert 1 > scores[0] > scores[1] > scores[2] == scores[3] == 0


def test_words_and_meaning_add_up() -> None:
    words, meaning, both = fused(close(0, 0.5, 0.5, a={0: 1, 2: 1})).scores

    assert both > max(words, meaning) > 0


def test_the_parts_of_a_score_add_up_to_it() -> None:
    ranking = fused(close(0.3, 0.5, 0.5, a={0: 1, 2: 1}))

    assert ranking.meaning is not None
    assert ranking.shares[A].score + ranking.meaning == pytest.approx(ranking.scores, abs=1e-5)


def test_entry_without_a_vector_scores_by_words() -> None:
    scores = fused(close(np.nan, np.nan, a={0: 1})).scores

    assert scores[0] > scores[1] == 0


def test_message_of_the_person_scores_above_answers() -> None:
    entries = close(0.5, 0.5, 0)
    entries = replace(entries, is_users=np.array([False, True, True]))

    scores = fused(entries).scores

    assert scores[1] > scores[0] > scores[2] == 0


def test_named_speaker_comes_first_without_a_common_word() -> None:
    entries = close(0.5, 0.5, 0, name={1: 1, 2: 1})

    (ranking,) = fuse([(entries, rank(entries, [A], [NAME]))])

    assert ranking.scores[1] > ranking.scores[0] > ranking.scores[2] == 0


def test_by_words_alone_what_others_said_counts_for_less() -> None:
    entries = corpus(1, 2, a={0: 1, 1: 1})
    words = rank(entries, [A], [])

    of_both = prefer_own(replace(entries, is_users=np.array([True, False])), words).scores
    of_none = prefer_own(entries, words).scores

    assert of_both[1] == pytest.approx(of_both[0] * OTHERS, abs=1e-6)
    assert of_none.tolist() == words.scores.tolist()


def test_the_second_passage_of_a_text_comes_after_the_first_of_another() -> None:
    entries = close(0.5, 0.49, 0.48)
    of_two = replace(entries, seqs=np.array([1, 1, 2]))

    assert fused(entries).scores.argsort().tolist() == [2, 1, 0]
    assert fused(of_two).scores.argsort().tolist() == [1, 2, 0]


def test_neighbours_count_for_short_messages() -> None:
    def beside(characters: int, *, is_conversation: bool = True) -> float:
        entries = replace(
            corpus(1, 1, 2, 3),
            closeness=np.array([0.9, 0.2, 0.2, 0.9], np.float32),
            ends=np.full(4, characters, np.uint32),
            is_conversation=is_conversation,
        )
        scores = fused(entries).scores
        return float(scores[1] - scores[2])  # beside what is close, and in another session

    assert beside(20) > beside(400) > 0
    assert beside(20, is_conversation=False) == 0


def test_corpora_ranked_together_share_one_scale() -> None:
    first, second = close(0.5, 0, 0), close(0.5)

    one, other = fuse([(first, rank(first, [A], [])), (second, rank(second, [A], []))])

    assert one.scores[0] == other.scores[0]
    assert fuse([(close(), rank(close(), [A], []))])[0].scores.tolist() == []


@pytest.mark.parametrize("repeated", [1, 3, 255])
def test_no_score_reaches_one(repeated: int) -> None:
    every = dict.fromkeys(range(3), repeated)
    scores = rank(corpus(1, 1, 1, a=every, b=every), [A, B], []).scores

    assert all(0 < score < 1 for score in scores)
