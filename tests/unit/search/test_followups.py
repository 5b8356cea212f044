"""The fewer terms a question has, the more words it borrows from the turns before it."""

import pytest

from memory.recall.search.followups import (
    ASSISTANT,
    FURTHER,
    MAX_CHARACTERS,
    MAX_QUESTION,
    MAX_TAKEN,
    MAX_TURNS,
    OTHERS,
    OWN,
    PER_TERM,
    USER,
    Question,
    Turn,
    complete,
)


def turns_of(text: str) -> list[Turn]:
    """Return turns, given as "u: text of the user|a: text of the assistant"."""
    names = {"u": USER, "a": ASSISTANT}
    parts = (one.split(": ", 1) for one in text.split("|"))
    return [Turn(names[role], content) for role, content in parts]


def taken(question: str, turns: str) -> list[str]:
    return list(complete(question, turns_of(turns)).taken)


GINA = "u: Gina met Tom in Lisbon on 5 May 2025.|a: How nice!"


@pytest.mark.parametrize(
    ("question", "turns", "words"),
    [
        ("What did she drink?", GINA, ["Gina", "met", "Tom", "Lisbon", "5", "May", "2025", "nice"]),
        ("And in May?", GINA, ["Gina", "met", "Tom", "Lisbon", "5", "2025", "nice"]),
        ("?", "u: Which bike?", ["bike"]),
        ("Wo war das?", "u: Der Urlaub am See", ["Der", "Urlaub", "See"]),
        ("А в мае?", "u: Продукты в марте?", ["Продукты", "марте"]),
        ("どこ？", "u: 東京の宿", ["東京", "京の", "の宿"]),
        ("When was she there?", "u: Ines was in Porto" + "\u0301" * 5000, ["Ines", "Porto"]),
    ],
)
def test_short_question_takes_words_in_any_language(
    question: str, turns: str, words: list[str]
) -> None:
    borrowed = taken(question, turns)

    assert [word.rstrip("\u0301") for word in borrowed] == words


@pytest.mark.parametrize(
    "question",
    ["What did Jon say about the garden party?", "", " ", "she " * MAX_QUESTION],
)
def test_complete_question_takes_nothing(question: str) -> None:
    assert complete(question, turns_of(GINA)) == Question(question)


@pytest.mark.parametrize(
    "turns", [[], [Turn(USER, "")], [Turn(USER, "?!")], [Turn(ASSISTANT, "Are you there?")]]
)
def test_turns_without_terms_add_nothing(turns: list[Turn]) -> None:
    assert complete("And in May?", turns).taken_as is None


def test_weights_fall_with_own_terms_role_and_distance() -> None:
    turns = turns_of("u: A boat?|a: Kiel.|u: Which bike has Ines?|a: A Canyon.")

    short = complete("When was that?", turns).weights()
    longer = complete("When did she buy red?", turns).weights()

    assert short == {
        "bike": OWN,
        "ine": OWN,
        "canyon": OTHERS,
        "boat": OWN * FURTHER,
        "kiel": OTHERS * FURTHER,
    }
    assert longer == {
        "buy": 1.0,
        "red": 1.0,
        **{term: pytest.approx(weight * PER_TERM) for term, weight in short.items()},
    }
    assert max(short.values()) < 1


def test_little_is_taken_of_much_and_of_the_newest() -> None:
    many = [Turn(USER, f"Town{number} is in Land{number}.") for number in range(50)]
    assert list(complete("Who was there?", many).taken)[:2] == ["Town49", "Land49"]
    long = complete("Who was there?", [Turn(USER, " ".join(f"w{n}" for n in range(200)))])
    assert 0 < len(long.taken) <= MAX_TAKEN
    assert list(long.taken)[-1] == "w199"
    cut = [Turn(USER, "I was in Lisbon. " + "well " * MAX_CHARACTERS)]
    assert list(complete("Who was there?", cut).taken) == ["well"]


def test_only_the_newest_turns_are_read() -> None:
    far = [Turn(USER, "I was in Lisbon."), *[Turn(ASSISTANT, "yes")] * MAX_TURNS]

    assert "Lisbon" not in complete("Who was there?", far).taken
    assert "Lisbon" in complete("Who was there?", far[:MAX_TURNS]).taken
