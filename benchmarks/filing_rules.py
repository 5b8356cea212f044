"""A stand-in for a language model, which files facts by rules, and the recorded facts.

The stand-in opens the domain, looks something up, edits and finishes. The facts are in
`locomo_facts.json`.
"""

import calendar
import datetime
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.analytical import ask
from benchmarks.harness import Client, require_data
from tests.llm_server import Called, Request, Said, called

CAP = 30_000
CHARACTERS_PER_TOKEN = 4

DOMAIN = "people"
VERBS = {
    "Opinion": "believes considers describes feels felt finds found hopes thinks views",
    "Preference": "appreciates enjoys likes loves prefers values",
    "Plan": "intends plans wants wishes",
    "Possession": "had has owns used uses",
}
CLASS_OF = {verb: name for name, verbs in VERBS.items() for verb in verbs.split()}
FIELDS = {
    **{name: {"person": "str", "what": "str"} for name in VERBS},
    "Event": {"person": "str", "what": "str", "on": "datetime.date"},
}
MONTHS = calendar.month_name[1:]
PERSON = re.compile(r"([A-Z][a-z]+) ((\w+) .+)", re.DOTALL)
DAY = re.compile(rf"\bon ({'|'.join(MONTHS)}) (\d{{1,2}}), (\d{{4}})\b")
# The question whether an edit adds a record that exists; the rules always add another one. Some
# protocols quote a refusal as JSON.
IS_THIS = re.compile(r'if not, \{\\?"(\d+)\\?": \{\\?"new\\?": true\}\}')
ENTRY = re.compile(r"^\[(\d+)\] \([^)]*\) (.*(?:\n    .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Fact:
    """A recorded fact: its line in the recording, and what is posted as an entry."""

    line: str
    session: str
    at: datetime.datetime
    text: str


def read_facts() -> dict[str, list[Fact]]:
    """Read the facts of each recorded conversation, by the conversation's name."""
    (path,) = require_data("locomo_facts.json")
    recorded = json.loads(path.read_text())
    return {name: [_fact(line) for line in lines] for name, lines in recorded.items()}


def _fact(line: str) -> Fact:
    header, text = line.split("] ", 1)
    session, moment = header.removeprefix("[").split(", ", 1)
    at = datetime.datetime.strptime(moment, "%I:%M %p on %d %B, %Y").replace(tzinfo=datetime.UTC)
    return Fact(line, session, at, text)


def answer(request: Request) -> Said:
    """Take the next step in filing the entries in the prompt, as a model would."""
    messages = request.body["messages"]
    question = messages[1]["content"]
    entries = lines_in(request)
    done = [
        call["function"]["name"] for message in messages for call in message.get("tool_calls") or []
    ]
    if not done and f"\n{DOMAIN}:\n" in question:
        opened = Called("open_domain", {"domain": DOMAIN})
        sought = next((text for _, text in entries if "what" in filed(text)[2]), None)
        return Said(calls=(opened, *([_look_up(sought)] if sought else [])))
    if "edit" not in done:
        defined = [
            {"define_class": f"{DOMAIN}.{name}", "fields": fields}
            for name, fields in FIELDS.items()
            if f"{name}(" not in question
        ]
        return called("edit", {"edits": [*defined, *(_edit(seq, text) for seq, text in entries)]})
    if asked := IS_THIS.findall(request.results[-1]):
        return called("edit", {"edits": {number: {"new": True} for number in asked}})
    if done[-1] == "finish" or "refused" in request.results[-1]:
        raise AssertionError(f"the rules were refused: {request.results[-1]}")
    return called("finish", {})


def lines_in(request: Request) -> list[tuple[int, str]]:
    """Return the number and text of each message to remember or entry to file in a prompt."""
    question = request.body["messages"][1]["content"]
    lines = question.rpartition("Messages to remember:\n")[2]
    lines = lines.rpartition("Entries to bring into it:\n")[2]
    return [(int(seq), text.replace("\n    ", "\n")) for seq, text in ENTRY.findall(lines)]


def filed(text: str) -> tuple[str, str, dict[str, str]]:
    """Return the domain, class and fields of the record in which the rules file a fact."""
    said = PERSON.fullmatch(text)
    if said is None:
        return "notes", "Note", {"text": text}
    person, what, verb = said.groups()
    if day := DAY.search(text):
        on = f"{day[3]}-{MONTHS.index(day[1]) + 1:02}-{int(day[2]):02}"
        return DOMAIN, "Event", {"person": person, "what": what, "on": on}
    if verb in CLASS_OF:
        return DOMAIN, CLASS_OF[verb], {"person": person, "what": what}
    return "notes", "Note", {"text": text}


def _edit(seq: int, text: str) -> dict[str, Any]:
    domain, class_name, fields = filed(text)
    if domain == "notes":
        return {"note": [seq]}
    return {"add": f"{domain}.{class_name}", "from": seq, "fields": fields}


def _look_up(text: str) -> Called:
    _, _, fields = filed(text)
    longest = max(re.findall(r"\w+", fields["what"]), key=len)
    return Called("look_up", {"domain": DOMAIN, "text": f"{fields['person']} {longest}"})


def tokens(sent: Any) -> float:
    """Return roughly how many tokens a value has as JSON."""
    return len(json.dumps(sent, ensure_ascii=False)) / CHARACTERS_PER_TOKEN


def left(client: Client, user_id: str, after: int = 0) -> dict[str, Any]:
    """Return how many entries are pending and rejected, and the share that records cite.

    The share is of the entries with numbers above `after`. It is computed by a query on the
    project, in a sandbox.
    """
    counts = client.get(f"users/{user_id}/")[1]["entries"]
    domains = client.get(f"users/{user_id}/state/")[1]["domains"]
    collections = [f"{name}.{one}" for name in domains for one in domains[name]["collections"]]
    cited = ask(
        client,
        user_id,
        f"({', '.join(collections)},)",
        f"len({{seq for held in data for one in held for seq in one.sources if seq > {after}}})",
    )["value"]
    return {
        "pending": counts["pending"],
        "rejected": counts["rejected"],
        "covered_share": cited / (counts["total"] - after),
    }


def prompt(lines: Sequence[str], cap: int | None = None) -> float:
    """Return the tokens of a single prompt with the same instructions and the log.

    `cap` is the maximum number of characters of the log; None means no limit.
    """
    from workers.authoring import prompts

    system = {"role": "system", "content": prompts.STRUCTURE}
    return tokens([system, {"role": "user", "content": "\n".join(lines)[:cap]}])


def within(lines: Sequence[str], cap: int) -> int:
    """Return how many facts fit completely within the first `cap` characters."""
    ends = itertools.accumulate(len(line) + 1 for line in lines)
    return sum(end - 1 <= cap for end in ends)
