"""Scoring in the benchmarks of language models."""

from typing import Any

import pytest

from benchmarks.analytical import equals_gold
from benchmarks.gate_programs import satisfies
from benchmarks.scores import token_f1


@pytest.mark.parametrize(
    ("said", "gold", "expected"),
    [
        ("The dog, and a cat!", "cat dog", 1.0),
        ("19 January 2023", "19 January, 2023", 1.0),
        ("a dog", "dog cat", 2 / 3),
        ("dog dog", "dog", 2 / 3),
        ("purple", "dog", 0.0),
        ("", "dog", 0.0),
        ("[]", "[]", 1.0),
    ],
)
def test_f1_ignores_articles_case_and_punctuation(said: str, gold: str, expected: float) -> None:
    assert token_f1(said, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "gold", "value", "right"),
    [
        ("int", 5, 5, True),
        ("int", 5, 5.0, False),
        ("int", 1, True, False),
        ("float", 200.0, 201.9, True),
        ("float", 200.0, 202.1, False),
        ("float", 0.1, 0.109, True),
        ("float", 0.0, None, False),
        ("string", "Rome", "in rome", True),
        ("string", "Rome", ["Rome"], False),
        ("set", ["a", "b"], ["b", "a"], True),
        ("set", ["a", "b"], ["a"], False),
        ("set", ["a"], [None, "a", 3], False),
    ],
)
def test_computed_answers_have_a_tolerance(kind: str, gold: Any, value: Any, right: bool) -> None:
    assert equals_gold(value, {"answer_kind": kind, "gold": gold}) is right


def test_an_alert_says_something_of_every_group() -> None:
    rubric = {"document": ["passport"], "day": [r"mar(?:ch)?\s+1", "2026-03-01"]}
    assert satisfies("The PASSPORT expires on 2026-03-01.", rubric)
    assert not satisfies("The passport expires.", rubric)
