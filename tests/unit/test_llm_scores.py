"""Scoring of the answers in the benchmark of a language model."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.analytical import equals_gold
from benchmarks.gate_programs import satisfies
from benchmarks.llm import calls_expected, conversation, read_cases
from benchmarks.llm_parts import locomo_score
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
        ("", "", 0.0),
    ],
)
def test_f1_is_over_words_without_articles_case_and_punctuation(
    said: str, gold: str, expected: float
) -> None:
    assert token_f1(said, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("category", "gold", "said", "expected"),
    [
        # each of several answers counts with its best match, in any order
        (1, "hiking, boardgames", "boardgames, hiking", 1.0),
        (1, "hiking, boardgames", "boardgames", 0.5),
        (4, "hiking, boardgames", "boardgames", 2 / 3),
        # text after a semicolon is a remark
        (3, "Likely yes; he has a dog there", "likely yes", 1.0),
        (2, "2020; or so", "2020", 0.5),
        (2, 2020, "2020", 1.0),
        # nobody has said it
        (5, None, "Not mentioned.", 1.0),
        (5, None, "Eagles", 0.0),
        (5, None, "", 0.0),
    ],
)
def test_locomo_has_rules_for_each_category(
    category: int, gold: Any, said: str, expected: float
) -> None:
    question = {"category": category, "answer": gold}
    assert locomo_score(question, said) == pytest.approx(expected)


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
def test_computed_answers_are_exact_within_their_tolerance(
    kind: str, gold: Any, value: Any, right: bool
) -> None:
    assert equals_gold(value, {"answer_kind": kind, "gold": gold}) is right


def test_an_alert_says_something_of_every_group() -> None:
    rubric = {"document": ["passport"], "day": [r"mar(?:ch)?\s+1", "2026-03-01"]}
    assert satisfies("The PASSPORT expires on 2026-03-01.", rubric)
    assert not satisfies("The passport expires.", rubric)


def test_limited_conversation_is_asked_about_told_facts_alone() -> None:
    turn = {"speaker": "Ada", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a red kite"}
    talk = {
        f"session_{number}{suffix}": value
        for number in (1, 2, 10)
        for suffix, value in (("_date_time", "4:04 pm on 20 January, 2023"), ("", [turn, turn]))
    }
    evidence = [["D1:1"], ["D1:2; D2:1"], ["D2:2"], ["D10:1"]]
    questions = [{"question": "?", "category": 4, "evidence": one} for one in evidence]
    sample = {"sample_id": "conv-1", "conversation": talk, "qa": questions}

    limited, whole = conversation(sample, 2), conversation(sample, None)

    assert [len(one["sessions"]) for one in (limited, whole)] == [2, 3]
    assert [one["evidence"] for one in limited["questions"]] == evidence[:2]
    assert whole["questions"] == questions
    assert whole["sessions"][2]["messages"][1] == {
        "kind": "message",
        "content": "Look! [shows a photo: a red kite]",
        "occurred_at": "2023-01-20T16:04:30+00:00",
        "session_id": "10",
        "speaker": "Ada",
    }


def test_a_story_is_due_at_its_trigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [{"session_id": n, "date": f"2026-01-0{n}", "text": f"said {n}"} for n in "12"]
    alert = {"message": "Look out!"}
    story = {"sessions": sessions, "trigger_session_id": "2", "expected_alert": alert}
    lines = [json.dumps({**story, "id": name}) for name in ("a", "b", "c")]
    (tmp_path / "scenarios.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("UAC_DATA_DIR", str(tmp_path))

    cases = read_cases("stories", None, [])

    assert [case["id"] for case in cases] == ["stories-a", "stories-b", "stories-c"]
    assert [session["due"] for session in cases[0]["sessions"]] == [False, True]
    assert cases[0]["expected"] == "Look out!"
    assert [case["id"] for case in read_cases("stories", 1, ["b", "c"])] == ["stories-b"]
    # the estimate depends on the questions
    assert calls_expected("stories", cases) == 3 * calls_expected("stories", cases[:1]) > 0
    # and a missing file has no cases
    assert read_cases("active", None, []) == []
