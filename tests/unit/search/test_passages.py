"""Long texts are ranked passage by passage."""

import pytest

from memory.recall.search.passages import MAX_PASSAGES, WORDS, cut
from memory.recall.search.words import number_of_words


@pytest.mark.parametrize("text", ["", " ", "a", " a b \n", "word " * (2 * WORDS - 1)])
def test_a_short_text_is_one_passage(text: str) -> None:
    assert cut(text) == [(0, len(text))]


@pytest.mark.parametrize("number", [120, 121, 179, 180, 400, 5000])
def test_the_passages_of_a_long_text_have_all_words_and_hardly_more_than_sixty(number: int) -> None:
    words = [f"w{place}" for place in range(number)]
    text = "  \n".join(words)

    passages = [text[start:end] for start, end in cut(text)]

    assert " ".join(passages).split() == words
    assert all(WORDS <= number_of_words(one) <= 1.5 * WORDS for one in passages)


def test_scripts_without_spaces_are_cut_by_character() -> None:
    text = "我上周在东京买了一把吉他" * 100

    passages = [text[start:end] for start, end in cut(text)]

    assert "".join(passages) == text
    assert {WORDS <= len(one) < 2 * WORDS for one in passages} == {True}


def test_text_without_spaces_is_cut() -> None:
    assert len(cut("x" * 1_000_000)) > 100


def test_passages_of_a_very_long_text_grow() -> None:
    assert len(cut("a word " * 150_000)) == MAX_PASSAGES
