"""Conversations with questions in one form, read from the published files of several benchmarks.

- `locomo`: LOCOMO's `locomo10.json`, as a list of samples.
- `longmemeval`: `longmemeval_s.json`, `…_m.json` or `…_oracle.json`; each question has a history of
  its own.
- `beam`: a folder of BEAM's chats, as in its repository: `chats/100K/1/chat.json` and
  `chats/100K/1/probing_questions/probing_questions.json`. Or a file with a list of conversations,
  as `benchmarks.beam` reads it.
- `aggregates`: questions that count, each about typed records instead of a conversation.
"""

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.analytical import record_entries
from benchmarks.beam import NOWHEN, moment_of, read_dialogues
from benchmarks.locomo import CATEGORIES, read_conversations

NOT_MENTIONED = "Not mentioned in the conversation."
ADVERSARIAL = 5
_COUNTS = re.compile(
    r"\bhow (?:many|much|often)\b|\b(?:number|total|average|sum) of\b", re.IGNORECASE
)
# The fields of BEAM's right answers; not every category has one.
_ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")
_PREFIX = re.compile(r"^LLM response should (?:contain|state|mention): ")
# A position in the plan of the conversation, at the end of BEAM's messages.
_PLAN_POSITION = re.compile(r"\s*->->\s*[\d,]+\s*$")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A question; `rubric` are the points of a right answer, if it is judged point by point.

    `day` is the day on which the question is asked, or None if that does not matter. `evidence` are
    the positions of the entries that contain the answer.
    """

    id: str
    text: str
    category: str
    answer: str
    rubric: Sequence[str] = ()
    day: str | None = None
    evidence: frozenset[int] = frozenset()
    is_aggregate: bool = False

    @property
    def counts(self) -> bool:
        """Whether the answer is computed rather than read, judging by the question's words."""
        return self.is_aggregate or _COUNTS.search(self.text) is not None


@dataclass(frozen=True)
class Talk:
    """A conversation, or a list of records, as entries of a log; and the questions about it."""

    name: str
    entries: Sequence[Entry]
    questions: Sequence[Question]

    @property
    def is_typed(self) -> bool:
        """Whether the entries are records, so that no model has to read them."""
        return bool(self.entries[0]["kind"] == "record")

    def sessions(self) -> Iterator[Sequence[Entry]]:
        """Yield the entries of each session."""
        for name in dict.fromkeys(entry.get("session_id") for entry in self.entries):
            yield [entry for entry in self.entries if entry.get("session_id") == name]


def _locomo(path: Path) -> Iterator[Talk]:
    recorded = json.loads(path.read_text())
    for talk, conversation in zip(recorded, read_conversations(path), strict=True):
        positions = {turn.name: position for position, turn in enumerate(conversation.turns)}
        questions = [
            Question(
                id=f"{conversation.name}-{number}",
                text=one["question"],
                category=CATEGORIES.get(one["category"], "adversarial"),
                answer=NOT_MENTIONED if one["category"] == ADVERSARIAL else str(one["answer"]),
                evidence=frozenset(
                    positions[name] for name in one.get("evidence", ()) if name in positions
                ),
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
        turns = [
            (turn, name, at + datetime.timedelta(seconds=30 * number))
            for at, name, said in sessions
            for number, turn in enumerate(said)
            if turn["content"].strip()
        ]
        is_absent = one["question_id"].endswith("_abs")
        question = Question(
            id=one["question_id"],
            text=one["question"],
            category="abstention" if is_absent else one["question_type"],
            answer=str(one["answer"]),
            day=str(_moment(one["question_date"]).date()),
            evidence=frozenset(
                position for position, (turn, *_) in enumerate(turns) if turn.get("has_answer")
            ),
        )
        entries = [_message(turn["role"], turn["content"], at, name) for turn, name, at in turns]
        yield Talk(f"longmemeval-{question.id}", entries, [question])


def _moment(text: str) -> datetime.datetime:
    """Read a time as in LongMemEval: 2023/05/20 (Sat) 02:21."""
    day, _, rest = text.partition(" ")
    return datetime.datetime.strptime(f"{day} {rest[-5:]} +0000", "%Y/%m/%d %H:%M %z")


def _message(role: str, text: str, at: datetime.datetime, session: str | None = None) -> Entry:
    entry = {"kind": "message", "content": text, "role": role, "occurred_at": at.isoformat()}
    return entry | ({"session_id": session} if session else {})


def _beam(path: Path) -> Iterator[Talk]:
    if path.is_dir():
        folders = [one.parent.parent for one in path.rglob("probing_questions.json")]
        for folder in sorted(folders, key=lambda one: (len(one.name), one.name)):
            yield _beam_chat(folder)
        return
    recorded = json.loads(path.read_text())
    for talk, dialogue in zip(recorded, read_dialogues(path), strict=True):
        positions = {one[0]: position for position, one in enumerate(talk["messages"])}
        yield Talk(
            dialogue.name,
            [_message(one.role, one.text, one.at) for one in dialogue.messages],
            _beam_questions(dialogue.name, talk["questions"], positions),
        )


def _beam_chat(folder: Path) -> Talk:
    entries: list[Entry] = []
    positions: dict[int, int] = {}
    at = NOWHEN
    for message in _messages(json.loads((folder / "chat.json").read_text())):
        at = moment_of(message["time_anchor"]) if message.get("time_anchor") else at
        positions[message["id"]] = len(entries)
        text = _PLAN_POSITION.sub("", message["content"])
        entries.append(_message(message["role"], text, at))
    asked = json.loads((folder / "probing_questions" / "probing_questions.json").read_text())
    questions = [
        {**one, "category": category, "evidence": list(_numbers(one.get("source_chat_ids")))}
        for category, several in asked.items()
        for one in several
    ]
    name = f"beam-{folder.name}"
    return Talk(name, entries, _beam_questions(name, questions, positions))


def _messages(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a chat of BEAM: in batches, turns and plans, as its size has them."""
    if isinstance(node, dict) and "content" in node:
        yield node
    elif isinstance(node, dict | list):
        for one in node.values() if isinstance(node, dict) else node:
            yield from _messages(one)


def _numbers(node: Any) -> Iterator[int]:
    """Yield the numbers in BEAM's `source_chat_ids`: a list, or lists by what they are for."""
    if isinstance(node, int):
        yield node
    elif isinstance(node, dict | list):
        for one in node.values() if isinstance(node, dict) else node:
            yield from _numbers(one)


def _beam_questions(
    talk: str, recorded: Sequence[Mapping[str, Any]], positions: Mapping[int, int]
) -> list[Question]:
    return [
        Question(
            id=f"{talk}-{number}",
            text=one["question"],
            category=one["category"],
            answer=str(next((one[name] for name in _ANSWERS if one.get(name)), "")),
            rubric=[_PREFIX.sub("", point) for point in one.get("rubric", ())],
            evidence=frozenset(positions[id_] for id_ in one["evidence"] if id_ in positions),
        )
        for number, one in enumerate(recorded)
    ]


def _aggregates(path: Path) -> Iterator[Talk]:
    """Yield the records of each question, since each is about a user of its own."""
    for number, case in enumerate(map(json.loads, path.read_text().splitlines())):
        question = Question(
            id=case["case_id"],
            text=case["question"],
            category=case["answer_kind"],
            answer=json.dumps(case["gold"]) if case["answer_kind"] == "set" else str(case["gold"]),
            is_aggregate=True,
        )
        entries = record_entries({case["type"]: case["records"]})
        yield Talk(f"aggregates-{number}", entries, [question])


# The readers, and the names of their files or folders in UAC_DATA_DIR.
READERS: Mapping[str, tuple[str, Callable[[Path], Iterator[Talk]]]] = {
    "locomo": ("locomo.json", _locomo),
    "longmemeval": ("longmemeval_s.json", _longmemeval),
    "beam": ("beam.json", _beam),
    "aggregates": ("analytical.jsonl", _aggregates),
}
