"""Reading the files of benchmarks about answers."""

import json
from pathlib import Path

from benchmarks.answer_data import read_talks


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
        "haystack_sessions": [turns, turns],
    }
    path.write_text(json.dumps([one]))

    (talk,) = read_talks("longmemeval", path)

    assert [(entry["session_id"], entry["occurred_at"]) for entry in talk.entries] == [
        ("early", "2023-04-01T10:00:00+00:00"),
        ("late", "2023-05-20T02:21:00+00:00"),
    ]
    (question,) = talk.questions
    assert (question.category, question.answer) == ("abstention", "3")
    assert question.day == "2023-05-30"
