"""Questions find entries that use other words."""

from benchmarks.paraphrases import TEXT, measure, read_people


def test_most_answers_are_among_the_first_five() -> None:
    _, figures = measure(read_people(TEXT.read_text()))

    assert figures["questions"] >= 200
    assert figures["words_at_5"] <= 20
    assert figures["search_at_5"] >= 85
