"""Conversations with questions in one form, read from LOCOMO's, LongMemEval's and BEAM's files."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.beam import read_dialogues
from benchmarks.locomo import CATEGORIES, read_conversations

NOT_MENTIONED = "Not mentioned in the conversation."
ADVERSARIAL = 5


@dataclass(frozen=True)
class Asked:
    """A question; `rubric` are the points that a right answer makes, if that is how it is judged.

    `day` is the day on which it is asked, or None if that does not matter.
    """

    id: str
    text: str
    category: str
    answer: str
    rubric: Sequence[str] = ()
    day: str | None = None


@dataclass(frozen=True)
class Talk:
    """A conversation as entries of a log, and the questions about it."""

    name: str
    entries: Sequence[Mapping[str, Any]]
    questions: Sequence[Asked]


def read_talks(benchmark: str, path: Path) -> Iterator[Talk]:
    """Yield the conversations in a benchmark's file."""
    return {"locomo": _locomo, "longmemeval": _longmemeval, "beam": _beam}[benchmark](path)


def _locomo(path: Path) -> Iterator[Talk]:
    recorded = json.loads(path.read_text())
    for talk, conversation in zip(recorded, read_conversations(path), strict=True):
        questions = [
            Asked(
                id=f"{conversation.name}-{number}",
                text=one["question"],
                category=CATEGORIES.get(one["category"], "adversarial"),
                answer=NOT_MENTIONED if one["category"] == ADVERSARIAL else str(one["answer"]),
            )
            for number, one in enumerate(talk["qa"])
        ]
        entries = [turn.entry for turn in conversation.turns]
        yield Talk(f"locomo-{conversation.name}", entries, questions)


def _longmemeval(path: Path) -> Iterator[Talk]:
    """Yield one conversation for each question, since each has a history of its own."""
    for one in json.loads(path.read_text()):
        dates = [_moment(text) for text in one["haystack_dates"]]
        sessions = sorted(
            zip(dates, one["haystack_session_ids"], one["haystack_sessions"], strict=True),
            key=lambda session: session[0],
        )
        entries = [
            {
                "kind": "message",
                "content": turn["content"],
                "role": turn["role"],
                "session_id": name,
                "occurred_at": (at + datetime.timedelta(seconds=30 * place)).isoformat(),
            }
            for at, name, turns in sessions
            for place, turn in enumerate(turns)
            if turn["content"].strip()
        ]
        is_absent = one["question_id"].endswith("_abs")
        question = Asked(
            id=one["question_id"],
            text=one["question"],
            category="abstention" if is_absent else one["question_type"],
            answer=str(one["answer"]),
            day=str(_moment(one["question_date"]).date()),
        )
        yield Talk(f"longmemeval-{question.id}", entries, [question])


def _moment(text: str) -> datetime.datetime:
    """Read a time as in LongMemEval: 2023/05/20 (Sat) 02:21."""
    day, _, rest = text.partition(" ")
    return datetime.datetime.strptime(f"{day} {rest[-5:]} +0000", "%Y/%m/%d %H:%M %z")


def _beam(path: Path) -> Iterator[Talk]:
    recorded = json.loads(path.read_text())
    for talk, dialogue in zip(recorded, read_dialogues(path), strict=True):
        entries = [
            {
                "kind": "message",
                "content": message.text,
                "role": message.role,
                "occurred_at": message.at.isoformat(),
            }
            for message in dialogue.messages
        ]
        questions = [
            Asked(
                id=f"{dialogue.name}-{number}",
                text=one["question"],
                category=one["category"],
                answer=str(one["answer"]),
                rubric=[
                    point.removeprefix("LLM response should contain: ") for point in one["rubric"]
                ],
            )
            for number, one in enumerate(talk["questions"])
        ]
        yield Talk(dialogue.name, entries, questions)
