"""Kinds of questions: recognised by their words, without a model."""

import pytest

from memory.recall.question_kinds import kind_of, topic_of


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        ("order", "In what order did I visit the museums?"),
        ("order", "Can you list the order in which I brought up my plans? Mention only 5 items."),
        ("order", "Did I first buy the tent, and then the stove?"),
        ("order", "In welcher Reihenfolge war ich dort?"),
        ("summary", "Can you summarise how I have handled stress?"),
        ("summary", "How have my reading habits evolved since May?"),
        ("summary", "Peux-tu résumer mon projet ?"),
        ("list", "What has she bought for her dogs?"),
        ("list", "Which activities does Ada pursue with her family?"),
        ("list", "What kind of music does Dave like?"),
        ("list", "How many trips did I take?"),
        ("one_thing", "When did she resume playing the drums?"),
        ("one_thing", "Can I sort my letters in order to save time?"),
        ("one_thing", "How many days passed between the two meetings?"),
        ("one_thing", "Was the trip to Rome dear?"),
        ("one_thing", ""),
    ],
)
def test_a_kind_is_recognised_by_words(kind: str, question: str) -> None:
    assert kind_of(question) == kind


def test_the_topic_is_what_the_answer_is_about_and_not_its_form() -> None:
    question = "Can you list in order how I brought up my garden? Mention ONLY and ONLY five items."
    assert topic_of(question).split()[-1] == "garden?"
    assert "five" not in topic_of(question)
    assert topic_of("Please summarise our conversations.") == "Please summarise our conversations."
