"""Detect questions that depend on the turns before them, and what they take from those."""

import pytest

from memory.recall.search.followups import (
    ASSISTANT,
    MAX_CHARACTERS,
    MAX_QUESTION,
    MAX_TAKEN,
    MAX_TURNS,
    OTHERS,
    OWN,
    REFERENT,
    USER,
    Question,
    Turn,
    may_lean,
    understand,
)


def said(text: str) -> list[Turn]:
    """Return turns, given as "u: text of the user|a: text of the assistant"."""
    names = {"u": USER, "a": ASSISTANT}
    parts = (one.split(": ", 1) for one in text.split("|"))
    return [Turn(names[who], content) for who, content in parts]


def taken(question: str, turns: str) -> list[str]:
    return list(understand(question, said(turns)).taken)


GINA = "u: Gina met Tom in Lisbon on 5 May 2025.|a: How nice!"


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What does she drink?", ["Tom", "Gina"]),
        ("What did he drink?", ["Tom"]),
        ("What do they drink?", ["Tom"]),
        ("What is her favourite film?", ["Tom"]),
        ("What did I eat there?", ["Lisbon"]),
        ("Who was there?", ["Lisbon", "Gina", "Tom", "5", "May"]),
        ("What did I eat that day?", ["5", "May", "2025"]),
        ("What did I eat then?", ["5", "May", "2025"]),
        ("What did she eat there that day?", ["Tom", "Lisbon", "5", "May", "2025", "Gina"]),
        ("And in June?", ["Gina", "met", "Tom", "Lisbon"]),
        ("And in Porto?", ["Gina", "Tom", "5", "May", "2025"]),
        ("Was spielte er dort damals?", ["Tom", "Lisbon", "5", "May", "2025", "Gina"]),
    ],
)
def test_a_pronoun_takes_what_it_may_stand_for(question: str, words: list[str]) -> None:
    assert taken(question, GINA)[: len(words)] == words


@pytest.mark.parametrize(
    "question",
    [
        "What did Jon say when he came?",
        "Does my sister like her job?",
        "Is there a pool in the garden?",
        "What time is it in Tokyo now?",
        "Is it raining in Tokyo?",
        "How long does it take to fly to Tokyo?",
        "Did the doctor say that ramipril is safe?",
        "What did I plan for this weekend?",
        "If I skip lunch, what can I eat for dinner then?",
        "When did Jon start his job in IT?",
        "Do Jon and Ines play in the same team?",
        "And when did I fly to Tokyo?",
        "Where do I live?",
        "Who is Ines?",
        "",
        " ",
        "?",
        "she " * MAX_QUESTION,
    ],
)
def test_what_stands_by_itself_takes_nothing(question: str) -> None:
    # "?" has no words to stand by, and takes what was said.
    asked = understand(question, said(GINA))

    assert (asked.taken == {}) == (question != "?")
    assert asked.taken_as == (None if question != "?" else asked.meant)


def test_without_turns_nothing_is_taken() -> None:
    for turns in ([], [Turn(USER, "")], [Turn(USER, "?!")], [Turn(ASSISTANT, "Yes, sure!")]):
        assert understand("And in May?", turns).taken_as is None


def test_the_newest_exchange_comes_first_and_those_before_it_only_where_it_says_nothing() -> None:
    turns = "u: Where is my boat?|a: In Kiel.|u: Which bike do I own?|a: A Canyon."
    assert taken("When did I buy it?", turns) == ["bike", "Canyon"]
    assert taken("When did I buy it?", f"{turns}|u: Oh!|a: Yes.") == ["bike", "Canyon"]


def test_the_persons_own_words_count_for_more_and_none_for_as_much_as_the_questions() -> None:
    asked = understand("When did she buy it?", said("u: Which bike has Ines?|a: A Canyon."))

    assert asked.taken == {"Ines": REFERENT, "bike": OWN, "Canyon": OTHERS}
    assert asked.weights() == {"buy": 1, "ine": REFERENT, "bike": OWN, "canyon": OTHERS}
    assert 1 > REFERENT > OWN > OTHERS > 0


def test_the_answer_to_the_question_before_is_not_taken_where_another_is_asked() -> None:
    turns = "u: What did I spend on groceries in March?|a: You spent 310 euros at Lidl."
    assert taken("And in May?", turns) == ["spend", "groceries"]
    assert taken("And in April?", f"{turns}|u: And in May?|a: 295 euros.") == ["spend", "groceries"]


def test_somebody_without_a_name_is_a_person_too_and_a_drink_is_none() -> None:
    assert taken("Where does she live?", "u: What does my sister drink?|a: Espresso.") == ["sister"]
    assert taken("Where does she live?", "u: My sister Mira is ill.") == ["Mira", "sister"]


def test_months_that_are_words_are_dates_only_where_they_stand_as_such() -> None:
    assert taken("What did I eat then?", "u: I may march to Rome in may, or March.")[:2] == [
        "may",
        "March",
    ]


def test_little_is_taken_of_much_and_of_the_newest() -> None:
    many = [Turn(USER, f"Town{number} is in Land{number}.") for number in range(50)]
    asked = understand("Who was there?", many)
    assert 0 < len(asked.taken) <= MAX_TAKEN
    assert next(iter(asked.taken)) == "Land49"
    far = [Turn(USER, "I was in Lisbon."), *[Turn(ASSISTANT, "yes")] * MAX_TURNS]
    assert understand("Who was there?", far).taken == {}
    assert understand("Who was there?", far[:MAX_TURNS]).taken
    long = [Turn(USER, "I was in Lisbon. " + "well " * MAX_CHARACTERS)]
    assert understand("Who was there?", long).taken == {}


def test_in_other_scripts_a_short_question_takes_the_words_of_the_last_turn() -> None:
    assert taken("А в мае?", "u: Сколько стоили продукты в марте?") == [
        "продукты",
        "Сколько",
        "стоили",
        "марте",
    ]
    assert taken("А сколько стоили продукты в мае?", "u: Где живёт Анна?") == []
    assert taken("どこ？", "u: 東京のホテルは?") == ["東京のホテルは"]


@pytest.mark.parametrize("marks", ["\u0301" * 5000, "e" + "\u0301\u0327" * 5000])
def test_marks_in_a_row_do_no_harm(marks: str) -> None:
    assert taken("When was she there?", f"u: Ines was in Porto{marks}")[0] == "Ines"


def test_what_a_language_model_adds_counts_as_what_a_pronoun_stands_for() -> None:
    question = Question("And in Oslo?", {"Rome": OWN}, "Which hotel was it in Oslo?")

    assert question.weights() == {"oslo": 1.0, "hotel": REFERENT}
    assert (question.taken_as, question.completed_by) == ("Which hotel was it in Oslo?", "model")
    assert question.meant == question.taken_as
    assert Question("And in Oslo?", {"Rome": OWN}).completed_by == "words"
    assert Question("And in Oslo?").completed_by is None


@pytest.mark.parametrize(
    ("question", "leans"),
    [
        ("What did she drink?", True),
        ("And in June?", True),
        ("What did Gina drink in Lisbon?", False),
        ("Wo wohnt meine Schwester?", False),
        ("E quanto è costato?", True),
        ("А сколько это стоило?", True),
        ("東京のホテルはどこにありましたか。", True),
        ("What did she drink? " * 30, False),
        (" ", False),
    ],
)
def test_whether_a_question_may_lean_is_told_where_its_language_is_known(
    question: str, leans: bool
) -> None:
    assert may_lean(question, said(GINA)) == leans
    assert not may_lean(question, [])
    assert not may_lean(question, [Turn(USER, " ")])
