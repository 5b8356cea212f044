"""A language model that works while it is well: visits become records."""

import random
import re
from typing import Any

from tests.chaos.journal import CANARY, Journal
from tests.llm_server import (
    Called,
    Reply,
    Request,
    Said,
    called,
    drops,
    hangs,
    raw,
    said,
    status,
)

# Messages about a visit; all others are small talk.
VISIT = re.compile(r"visits (\w+)")
_LINE = re.compile(r"^\[(\d+)\] \(([^)]*)\) (.*)$", re.MULTILINE)

DEFINE = {
    "op": "define_class",
    "domain": "travel",
    "name": "Visit",
    "fields": [{"name": "place", "type": "str"}, {"name": "said", "type": "str"}],
}


class Model:
    """The script of a `tests.llm_server`, and its state: well, hanging, failing, or mad."""

    def __init__(self, journal: Journal, seed: int) -> None:
        self.mood = "well"
        self._journal = journal
        self._choices = random.Random(f"model {seed}")

    def __call__(self, request: Request) -> Reply:
        heard = set(CANARY.findall(request.text))
        for canary in heard:
            self._journal.note("asked", canary)
        if len(heard) > 1:
            self._journal.problem(f"a prompt tells of {len(heard)} people: {sorted(heard)}")
        match self.mood:
            case "hanging":
                return hangs(30)
            case "failing":
                return self._choices.choice(
                    (status(500), status(429, retry_after="1"), status(529), drops())
                )
            case "mad":
                return self._choices.choice(
                    (
                        said("I would rather not."),
                        raw("{"),
                        raw("<html>", "text/html"),
                        called("remember", {"facts": "none"}),
                        called("finish", {"edits": 7}),
                        said("half a wo", finish="length"),
                    )
                )
        question = _question(request)
        if "remember" in request.tools:
            return called("remember", {"facts": _facts(question)})
        return _structure(question, told=bool(_results(request)))


def _question(request: Request) -> str:
    """Return the first message after the instructions."""
    asked = next(one for one in request.body["messages"] if one["role"] == "user")
    content = asked["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _results(request: Request) -> list[Any]:
    return [one for one in request.body["messages"] if one["role"] == "tool"]


def _facts(question: str) -> list[dict[str, Any]]:
    _, _, new = question.partition("Messages to remember:\n")
    return [
        {"text": text, "sources": [int(seq)]}
        for seq, _, text in _LINE.findall(new)
        if VISIT.search(text)
    ]


def _structure(question: str, *, told: bool) -> Reply:
    if told:  # the edits stay where they are: what went wrong is a race, or another's fault
        return called("finish", {})
    project, _, entries = question.partition("Entries to bring into it:\n")
    visits: list[tuple[int, str, str]] = []
    rest: list[int] = []
    for seq, _, text in _LINE.findall(entries):
        if visit := VISIT.search(text):
            visits.append((int(seq), visit[1], text))
        else:
            rest.append(int(seq))
    edits: list[dict[str, Any]] = []
    if visits and not re.search(r"\bVisit\b", project):
        edits.append({**DEFINE, "sources": [visits[0][0]]})
    edits += [
        {
            "op": "add",
            "domain": "travel",
            "class_name": "Visit",
            "fields": {"place": place, "said": text},
            "sources": [seq],
        }
        for seq, place, text in visits
    ]
    if rest:
        edits.append({"op": "dismiss", "reason": "small talk", "sources": rest})
    return Said(calls=(Called("edit", {"edits": edits}, "a"), Called("finish", {}, "b")))
