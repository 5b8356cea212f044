"""Compare what it costs UaC, mem0 and a model that rewrites the state to remember a conversation.

The first conversation in `locomo.json` (in UAC_DATA_DIR) whose facts are known is sent session by
session, alternately to a UaC server and to mem0 as pip installs it, with its default stores and its
own prompts. Both use the same language model: a stand-in on this machine that answers immediately
and finds in each session the facts that a real model once found (`locomo_facts.json`). So both end
up with the same knowledge; they differ in what they send, how often they send it, and in their
other work.

The benchmark counts the calls to the model and their tokens (four characters each). It also times
how long the caller waits for an answer, and how long it takes until everything is remembered. A
real model would add its own time to each call. For the same sessions and facts, the benchmark
computes the cost of the paper's policy, in which a model rewrites the whole state from the facts,
up to a cap of 30,000 characters; the state consists of records like UaC's.

mem0 stores facts as text. UaC also finds facts, but then brings them into the typed project, for
which mem0 has no equivalent; so UaC's tokens are given for finding facts alone and in total. A real
model may need a different number of turns for a window of facts than the stand-in, which looks
something up, edits, and finishes.
"""

import itertools
import json
import logging
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.filing_rules import (
    CAP,
    CHARACTERS_PER_TOKEN,
    Fact,
    answer,
    filed,
    left,
    lines_in,
    prompt,
    read_facts,
    tokens,
    within,
)
from benchmarks.harness import (
    Client,
    Row,
    append,
    end_without_data,
    expect,
    new_client,
    parser,
    report,
    require_data,
    settings_of,
    settled,
)
from benchmarks.locomo import Conversation, Turn, read_conversations
from benchmarks.mem0_peer import DIMENSIONS, Peer, by_hash, mem0
from deploy.embedded.system import running_system
from tests.llm_server import KEY, Request, Said, called, llm_server, said

# The stand-in model marks a fact as derived, as the gate would require, if fewer than one in this
# many of its words occur in the message that it cites.
ONE_IN = 5


@dataclass
class Told:
    """Totals of what a model was sent and what it answered, and how long its callers waited."""

    answered: list[float] = field(default_factory=list)
    remembered: list[float] = field(default_factory=list)
    calls: int = 0
    sent: float = 0
    received: float = 0

    def count(self, request: Request, reply: Said) -> None:
        """Count a call to the model and its tokens."""
        self.calls += 1
        self.sent += tokens(request.body["messages"]) + tokens(request.body.get("tools", []))
        written = len(reply.text) + sum(len(json.dumps(call.arguments)) for call in reply.calls)
        self.received += written / CHARACTERS_PER_TOKEN

    def row(self, what: str, embedded: float = 0, kept: float = 1) -> Row:
        """Return the row of the table for this way of remembering."""
        return {
            "what": what,
            "model_calls": self.calls,
            "tokens_sent": round(self.sent),
            "tokens_received": round(self.received),
            "tokens_embedded": round(embedded),
            "facts_kept_percent": round(100 * kept, 1),
            "answered_ms": _median_ms(self.answered),
            "remembered_ms": _median_ms(self.remembered),
        }


def _median_ms(seconds: Sequence[float]) -> int | None:
    return round(1000 * statistics.median(seconds)) if seconds else None


@dataclass
class Model:
    """The stand-in for a language model, which knows the facts of the current session.

    It keeps separate totals: for UaC, of the calls that find facts and of all calls; for mem0, of
    all calls.
    """

    facts: Sequence[Fact] = ()
    finding: Told = field(default_factory=Told)
    uac: Told = field(default_factory=Told)
    mem0: Told = field(default_factory=Told)

    def for_uac(self, request: Request) -> Said:
        """Answer UaC: list the session's facts, or file facts by the rules in `tokens.py`."""
        if "remember" not in request.tools:
            reply = answer(request)
        else:
            texts = list(lines_in(request))
            reply = called("remember", {"facts": [_cited(fact.text, texts) for fact in self.facts]})
            self.finding.count(request, reply)
        self.uac.count(request, reply)
        return reply

    def for_mem0(self, request: Request) -> Said:
        """Answer mem0: list the session's facts."""
        found = [
            {"id": str(number), "text": fact.text, "attributed_to": "user"}
            for number, fact in enumerate(self.facts)
        ]
        reply = said(json.dumps({"memory": found}))
        self.mem0.count(request, reply)
        return reply


def _cited(text: str, lines: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return a fact that cites whichever message contains most of its words."""
    words = _words(text)
    seq, line = max(lines, key=lambda line: len(words & _words(line[1])))
    # The recording does not show whether a fact's numbers and dates occur in the cited message.
    unsaid = _needs_reason(text) or ONE_IN * len(words & _words(line)) < len(words)
    derived = {"derived": f"As said in the session: {line}"} if unsaid else {}
    return {"text": text, "sources": [seq], **derived}


def _words(text: str) -> set[str]:
    """Return the words of a text that the gate compares to check a fact against its entries."""
    from memory.recall.search.words import terms

    return {term for term in terms(text) if len(term) > 1}


def _needs_reason(text: str) -> bool:
    return bool(re.search(r"\d|day|week|month|year|ago\b|tonight|tomorrow", text))


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, sessions=(None, 2)).parse_args()
    locomo, _ = require_data("locomo.json", "locomo_facts.json")
    recorded = read_facts()
    known = [one for one in read_conversations(locomo) if recorded.get(one.name)]
    if not known:
        end_without_data("locomo_facts.json has no facts of a conversation in locomo.json")
    conversation = known[0].beginning(asked.sessions)
    told = {turn.session for turn in conversation.turns}
    facts = [fact for fact in recorded[conversation.name] if fact.session in told]
    logging.disable(logging.WARNING)  # otherwise mem0 would log every step
    model = Model()
    with (
        llm_server(script=model.for_uac) as ours,
        llm_server(script=model.for_mem0) as theirs,
        mem0(by_hash, DIMENSIONS, theirs.openai_url) as peer,
    ):
        environment = {
            "UAC_LLM_MODEL": "openai:recorded",
            "UAC_LLM_BASE_URL": ours.openai_url,
            "UAC_LLM_API_KEY": KEY,
            "UAC_STRUCTURE_ENTRIES": "1",
            # Two separate steps, so that the tokens for finding facts can be counted separately.
            "UAC_LLM_COMBINE_STEPS": "false",
            "UAC_SANDBOX_RUNNER": "docker",
        }
        with running_system(llm_workers=1, environment=environment) as system:
            settings_of(system)
            client = new_client(system, "remember")
            rows = measure(client, model, peer, conversation, facts)
    figures = figures_of(rows)
    settings = {
        "conversation": conversation.name,
        "messages": len(conversation.turns),
        "facts": len(facts),
        "model": "a stand-in that answers at once with recorded facts",
        "mem0": "2.2, as pip installs it: Qdrant in files, SQLite; without its extra nlp",
        "characters_per_token": CHARACTERS_PER_TOKEN,
    }
    report("remember", settings=settings, rows=rows, figures=figures, path=asked.json)


def measure(
    client: Client,
    model: Model,
    peer: Peer,
    conversation: Conversation,
    facts: Sequence[Fact],
) -> list[Row]:
    """Send all sessions to UaC and mem0; return a row for each way of remembering."""
    anew, capped = Told(), Told()
    known: list[Fact] = []
    number = 0
    user_id = conversation.name
    expect(201, client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))
    for session, said_then in itertools.groupby(conversation.turns, key=lambda turn: turn.session):
        turns = list(said_then)
        model.facts = [fact for fact in facts if fact.session == session]
        known += model.facts
        number += len(turns) + len(model.facts)
        tell_uac(client, user_id, model.uac, turns, number)
        tell_mem0(peer, user_id, model.mem0, turns)
        for way, cap in ((anew, None), (capped, CAP)):
            write_anew(way, known, cap)
    # The ways that rewrite the state also have to find the facts, which costs what it costs UaC.
    for way in (anew, capped):
        way.calls += model.finding.calls
        way.sent += model.finding.sent
        way.received += model.finding.received
    distinct = {fact.text for fact in facts}
    found = peer.memory.get_all(filters={"user_id": user_id}, top_k=2 * len(facts))["results"]
    stored = distinct & {one["memory"] for one in found}
    lines = [fact.line for fact in facts]
    # UaC's records cite facts, which are the entries in the log other than messages.
    kept = left(client, user_id)["covered_share"] * number / len(facts)
    return [
        model.uac.row("UaC", kept=kept),
        model.finding.row("UaC, facts alone"),
        model.mem0.row("mem0", embedded=sum(map(len, peer.texts)) / CHARACTERS_PER_TOKEN)
        | {"facts_kept_percent": round(100 * len(stored) / len(distinct), 1)},
        anew.row("state written anew"),
        capped.row("state written anew, 30,000 characters", kept=within(lines, CAP) / len(lines)),
    ]


def tell_uac(client: Client, user_id: str, told: Told, turns: Sequence[Turn], number: int) -> None:
    """Append a session's messages to UaC, and wait until they and their facts are settled.

    `number` is how many entries the log then has.
    """
    started = time.perf_counter()
    append(client, user_id, [{**turn.entry, "role": "user"} for turn in turns])
    told.answered.append(time.perf_counter() - started)
    settled(client, user_id, number)
    told.remembered.append(time.perf_counter() - started)


def tell_mem0(peer: Peer, user_id: str, told: Told, turns: Sequence[Turn]) -> None:
    """Add a session's messages; mem0 returns once they are remembered."""
    messages = [{"role": "user", "content": f"{turn.speaker}: {turn.text}"} for turn in turns]
    started = time.perf_counter()
    peer.memory.add(messages, user_id=user_id, metadata={"timestamp": turns[0].at.isoformat()})
    told.answered.append(time.perf_counter() - started)
    told.remembered.append(told.answered[-1])


def write_anew(told: Told, known: Sequence[Fact], cap: int | None) -> None:
    """Count the tokens of one call to a model that gets all facts and writes the whole state.

    `cap` is the maximum number of characters of facts; None means no limit.
    """
    lines = [fact.line for fact in known]
    told.calls += 1
    told.sent += prompt(lines, cap)
    shown = known if cap is None else known[: within(lines, cap)]
    told.received += len(state_of(shown)) / CHARACTERS_PER_TOKEN


def state_of(facts: Sequence[Fact]) -> str:
    """Return facts as Python records, like those that UaC renders."""
    lines = []
    for number, fact in enumerate(facts, 1):
        _, class_name, fields = filed(fact.text)
        values = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        key = f"{class_name.lower()}-{number}"
        lines.append(f"    {class_name}(key={key!r}, {values}, sources=({number},)),")
    return "\n".join(lines)


def figures_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures: all tokens sent and received in each way, and ratios between ways."""
    names = ("uac", "uac_facts", "mem0", "anew", "capped")
    figures: dict[str, Any] = {
        f"{name}_tokens": row["tokens_sent"] + row["tokens_received"]
        for name, row in zip(names, rows, strict=True)
    }
    for name in ("uac", "uac_facts"):
        figures[f"{name}_vs_mem0"] = round(figures[f"{name}_tokens"] / figures["mem0_tokens"], 2)
    figures["uac_vs_anew"] = round(figures["uac_tokens"] / figures["anew_tokens"], 2)
    return figures


if __name__ == "__main__":
    main()
