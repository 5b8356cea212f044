"""Read LOCOMO's recorded conversations, with their questions of categories 1 to 4."""

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi_hop", 2: "time", 3: "open", 4: "single_hop"}


@dataclass(frozen=True)
class Turn:
    """A speaker's turn; its text includes the caption of any picture that was sent with it."""

    name: str
    session: str
    at: datetime.datetime
    speaker: str
    text: str

    @property
    def words(self) -> int:
        """The number of words in the turn."""
        return len(self.text.split())

    @property
    def entry(self) -> dict[str, Any]:
        """The turn as a message to append to a log."""
        return {
            "kind": "message",
            "content": self.text,
            "speaker": self.speaker,
            "session_id": self.session,
            "occurred_at": self.at.isoformat(),
        }


@dataclass(frozen=True)
class Question:
    """A question, and the positions of the turns that answer it."""

    text: str
    evidence: frozenset[int]
    category: int


@dataclass(frozen=True)
class Conversation:
    """A conversation's turns in order, and the questions about them."""

    name: str
    turns: Sequence[Turn]
    questions: Sequence[Question]

    def beginning(
        self, sessions: int | None = None, questions: int | None = None
    ) -> "Conversation":
        """Return the first sessions, with the first questions that they answer; None means all."""
        told = [*dict.fromkeys(turn.session for turn in self.turns)][:sessions]
        turns = [turn for turn in self.turns if turn.session in told]
        answered = [one for one in self.questions if max(one.evidence) < len(turns)]
        return Conversation(self.name, turns, answered[:questions])


def read_conversations(path: Path) -> list[Conversation]:
    """Read the recorded conversations and their questions."""
    found = []
    for recorded in json.loads(path.read_text()):
        said = recorded["conversation"]
        sessions = sorted(
            (name for name in said if re.fullmatch(r"session_\d+", name)),
            key=lambda name: int(name.removeprefix("session_")),
        )
        turns = [
            _turn(turn, name, said[f"{name}_date_time"]) for name in sessions for turn in said[name]
        ]
        places = {turn.name: place for place, turn in enumerate(turns)}
        questions = [
            Question(one["question"], evidence, one["category"])
            for one in recorded["qa"]
            if one["category"] in CATEGORIES
            # A few questions name turns that do not exist.
            if (evidence := frozenset(places[name] for name in one["evidence"] if name in places))
        ]
        found.append(Conversation(recorded["sample_id"], turns, questions))
    return found


def _turn(recorded: dict[str, Any], session: str, moment: str) -> Turn:
    at = datetime.datetime.strptime(moment, "%I:%M %p on %d %B, %Y").replace(tzinfo=datetime.UTC)
    caption = recorded.get("blip_caption")
    text = recorded["text"] + (f" [shares {caption}]" if caption else "")
    return Turn(recorded["dia_id"], session, at, recorded["speaker"], text)
