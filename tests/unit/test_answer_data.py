"""Reading the published files of benchmarks about answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.answer_data import READERS, Question, Talk


def _read(benchmark: str, path: Path) -> list[Talk]:
    _, read = READERS[benchmark]
    return list(read(path))


def test_longmemeval_has_a_history_for_each_question_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "longmemeval_s.json"
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " "}]
    one = {
        "question_id": "q1_abs",
        "question_type": "multi-session",
        "question": "How many?",
        "answer": 3,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["late", "early"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/04/01 (Sat) 10:00"],
        "haystack_sessions": [[{**turns[0], "has_answer": True}, turns[1]], turns],
        "answer_session_ids": ["late"],
    }
    path.write_text(json.dumps([one]))

    (talk,) = _read("longmemeval", path)

    assert [(entry["session_id"], entry["occurred_at"]) for entry in talk.entries] == [
        ("early", "2023-04-01T10:00:00+00:00"),
        ("late", "2023-05-20T02:21:00+00:00"),
    ]
    (question,) = talk.questions
    assert (question.category, question.answer, question.counts) == ("abstention", "3", True)
    assert question.day == "2023-05-30"
    assert question.evidence == {1}


def _message(number: int, role: str = "user", **more: str) -> dict[str, Any]:
    return {"role": role, "id": number, "content": f"text {number}", **more}


FIRST = [_message(0, time_anchor="March-15-2024", index="1,1"), _message(1, "assistant")]
SECOND = [_message(2), _message(3, "assistant")]
CHATS = {
    "batches of turns": [
        {"batch_number": 1, "turns": [FIRST]},
        {"batch_number": 2, "turns": [SECOND]},
    ],
    "batches of messages": [FIRST, SECOND],
    "plans": [
        {"plan-0": [{"batch_number": 1, "turns": [FIRST]}], "plan-1": None},
        {"plan-0": None, "plan-1": [{"batch_number": 1, "turns": [SECOND]}]},
    ],
}


@pytest.mark.parametrize("form", CHATS)
def test_beam_is_read_as_it_was_published(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "100K" / "7"
    (folder / "probing_questions").mkdir(parents=True)
    chat = json.loads(json.dumps(CHATS[form]))
    (folder / "chat.json").write_text(json.dumps(chat).replace("text 2", "text 2 ->-> 1,2"))
    questions = {
        "summarization": [
            {
                "question": "Sum it up.",
                "ideal_summary": "All of it.",
                "source_chat_ids": {"first": [2], "second": [[3]]},
                "rubric": ["LLM response should contain: all of it", "order"],
            }
        ],
        "information_extraction": [
            {"question": "When?", "answer": "In March", "source_chat_ids": [0], "rubric": []}
        ],
    }
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(questions))

    (talk,) = _read("beam", tmp_path)

    assert talk.name == "beam-7"
    assert [entry["content"] for entry in talk.entries] == [f"text {n}" for n in range(4)]
    assert {entry["occurred_at"] for entry in talk.entries} == {"2024-03-15T00:00:00+00:00"}
    assert talk.questions == [
        Question(
            "beam-7-0",
            "Sum it up.",
            "summarization",
            "All of it.",
            ["all of it", "order"],
            evidence=frozenset({2, 3}),
        ),
        Question(
            "beam-7-1",
            "When?",
            "information_extraction",
            "In March",
            [],
            evidence=frozenset({0}),
        ),
    ]


def test_locomo_names_the_turns_that_answer(tmp_path: Path) -> None:
    turn = {"speaker": "Ada", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a red kite"}
    talk = {"session_1_date_time": "4:04 pm on 20 January, 2023", "session_1": [turn]}
    qa = [
        {"question": "What?", "answer": "a kite", "category": 4, "evidence": ["D1:1", "D9:9"]},
        {"question": "Who?", "adversarial_answer": "Bob", "category": 5, "evidence": []},
    ]
    path = tmp_path / "locomo10.json"
    path.write_text(json.dumps([{"sample_id": "conv-1", "conversation": talk, "qa": qa}]))

    (read,) = _read("locomo", path)

    known, adversarial = read.questions
    assert (known.answer, known.evidence) == ("a kite", frozenset({0}))
    assert (adversarial.answer, adversarial.category) == (
        "Not mentioned in the conversation.",
        "adversarial",
    )
    assert "a red kite" in read.entries[0]["content"]
