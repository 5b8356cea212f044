"""Compare the cost of remembering a conversation: UaC, mem0, a model that rewrites the state.

The first conversation of `locomo.json` (UAC_DATA_DIR) whose facts are known is sent session by
session, in turn to a UaC server and to mem0 as pip installs it (with its default stores and its own
prompts). Both have the same language model: a stand-in on this machine that answers immediately,
and finds in each session the facts that a real model once found (`locomo_facts.json`). So both end
up with the same knowledge; they differ in what they send, how often, and in their other work.

The benchmark counts the model's calls and their tokens (four characters each), and times how long
the caller waits for an answer, and until everything is remembered. A real model would add its own
time to each call. The paper's policy of having the whole state rewritten from the facts, up to a
cap of 30,000 characters, is computed for the same sessions and facts, in records like UaC's.

mem0 stores facts as text. UaC also finds facts, and then brings them into the typed project, for
which mem0 has no equivalent: so UaC's tokens are given for the facts alone and in total. A real
model may need a different number of turns for a window of facts: the stand-in looks things up,
edits and finishes.
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

from benchmarks.harness import (
    Client,
    end_without_data,
    parser,
    report,
    require_data,
    settings_of,
    settled,
)
from benchmarks.mem0_peer import DIMENSIONS, Peer, by_hash, mem0
from benchmarks.retrieval import Conversation, Turn, read_conversations
from benchmarks.tokens import (
    CAP,
    CHARACTERS_PER_TOKEN,
    Fact,
    answer,
    create,
    filed,
    left,
    lines_in,
    read_facts,
    tokens,
    within,
)
from tests.llm_server import KEY, Request, Said, called, llm_server, said
from uac_site.embedded.system import running_system

# The share of a fact's words that the gate requires in its entries if it is not marked as derived.
ONE_IN = 5


@dataclass
class Told:
    """Totals of what a model received and answered, and how long its caller waited."""

    answered: list[float] = field(default_factory=list)
    remembered: list[float] = field(default_factory=list)
    calls: int = 0
    sent: float = 0
    received: float = 0

    def count(self, request: Request, reply: Said) -> None:
        """Count a call of the model."""
        self.calls += 1
        self.sent += tokens(request.body["messages"]) + tokens(request.body.get("tools", []))
        written = len(reply.text) + sum(len(json.dumps(call.arguments)) for call in reply.calls)
        self.received += written / CHARACTERS_PER_TOKEN

    def row(self, what: str, embedded: float = 0, kept: float = 1) -> dict[str, Any]:
        """Return a line of the table."""
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
    """The stand-in model, which knows the facts of the current session.

    Its tokens are counted: for UaC those of finding facts, and all tokens; for mem0 all tokens.
    """

    facts: Sequence[Fact] = ()
    finding: Told = field(default_factory=Told)
    uac: Told = field(default_factory=Told)
    mem0: Told = field(default_factory=Told)

    def for_uac(self, request: Request) -> Said:
        """Find the facts of messages; file those of a window by the rules of `tokens`."""
        if "remember" not in request.tools:
            reply = answer(request)
        else:
            texts = list(lines_in(request))
            reply = called("remember", {"facts": [_cited(fact.text, texts) for fact in self.facts]})
            self.finding.count(request, reply)
        self.uac.count(request, reply)
        return reply

    def for_mem0(self, request: Request) -> Said:
        """Find the facts of messages."""
        found = [
            {"id": str(number), "text": fact.text, "attributed_to": "user"}
            for number, fact in enumerate(self.facts)
        ]
        reply = said(json.dumps({"memory": found}))
        self.mem0.count(request, reply)
        return reply


def _cited(text: str, lines: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return a fact with the message that has most of its words."""
    words = _words(text)
    seq, line = max(lines, key=lambda line: len(words & _words(line[1])))
    # The recording does not tell whether a number or a date is in that very message.
    unsaid = _needs_reason(text) or ONE_IN * len(words & _words(line)) < len(words)
    derived = {"derived": f"As said in the session: {line}"} if unsaid else {}
    return {"text": text, "sources": [seq], **derived}


def _words(text: str) -> set[str]:
    """Return the words by which the gate compares a fact with the entries that it cites."""
    from memory.recall.search.words import terms

    return {term for term in terms(text) if len(term) > 1}


def _needs_reason(text: str) -> bool:
    return bool(re.search(r"\d|day|week|month|year|ago\b|tonight|tomorrow", text))


def main() -> None:
    """Run the benchmark."""
    asked = parser(__doc__, sessions=(None, 2)).parse_args()
    locomo, _ = require_data("locomo.json", "locomo_facts.json")
    recorded = read_facts()
    known = [one for one in read_conversations(locomo) if recorded.get(one.name)]
    if not known:
        end_without_data("locomo_facts.json has no facts of a conversation in locomo.json")
    conversation = known[0].beginning(asked.sessions)
    told = {turn.session for turn in conversation.turns}
    facts = [fact for fact in recorded[conversation.name] if fact.session in told]
    logging.disable(logging.WARNING)  # mem0 logs every step
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
            # Two questions, so that the tokens of finding facts are counted by themselves.
            "UAC_LLM_COMBINE_STEPS": "false",
            "UAC_SANDBOX_RUNNER": "docker",
        }
        with running_system(llm_workers=1, environment=environment) as system:
            settings_of(system)
            key = json.loads(system.manage("create_workspace", "remember"))["api_key"]
            client = Client(system.base_url, key)
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
) -> list[dict[str, Any]]:
    """Send both the sessions in order; return a row for each way."""
    anew, capped = Told(), Told()
    known: list[Fact] = []
    number = 0
    user_id = conversation.name
    create(client, user_id)
    for session, said_then in itertools.groupby(conversation.turns, key=lambda turn: turn.session):
        turns = list(said_then)
        model.facts = [fact for fact in facts if fact.session == session]
        known += model.facts
        number += len(turns) + len(model.facts)
        tell_uac(client, user_id, model.uac, turns, number)
        tell_mem0(peer, user_id, model.mem0, turns)
        for way, cap in ((anew, None), (capped, CAP)):
            write_anew(way, known, cap)
    # The same model finds the facts for mem0, in the same messages as for UaC.
    for way in (anew, capped):
        way.calls += model.finding.calls
        way.sent += model.finding.sent
        way.received += model.finding.received
    distinct = {fact.text for fact in facts}
    found = peer.memory.get_all(filters={"user_id": user_id}, top_k=2 * len(facts))["results"]
    stored = distinct & {one["memory"] for one in found}
    lines = [fact.line for fact in facts]
    # The records cite facts, which are those entries of the log that are no messages.
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
    """Append the messages of a session, and wait until they and their facts are in the project."""
    started = time.perf_counter()
    post_turns(client, user_id, turns)
    told.answered.append(time.perf_counter() - started)
    settled(client, user_id, number)
    told.remembered.append(time.perf_counter() - started)


def post_turns(client: Client, user_id: str, turns: Sequence[Turn]) -> None:
    """Append turns as messages, in one request."""
    entries = [
        {
            "kind": "message",
            "role": "user",
            "content": turn.text,
            "speaker": turn.speaker,
            "session_id": turn.session,
            "occurred_at": turn.at.isoformat(),
        }
        for turn in turns
    ]
    status, body = client.post(f"users/{user_id}/entries/", {"entries": entries})
    assert status == 202, body


def tell_mem0(peer: Peer, user_id: str, told: Told, turns: Sequence[Turn]) -> None:
    """Add the messages of a session; it answers when they are remembered."""
    messages = [{"role": "user", "content": f"{turn.speaker}: {turn.text}"} for turn in turns]
    started = time.perf_counter()
    peer.memory.add(messages, user_id=user_id, metadata={"timestamp": turns[0].at.isoformat()})
    told.answered.append(time.perf_counter() - started)
    told.remembered.append(told.answered[-1])


def write_anew(told: Told, known: Sequence[Fact], cap: int | None) -> None:
    """Count one call that is sent all facts, up to the cap, and writes the whole state."""
    from workers.authoring import prompts

    lines = [fact.line for fact in known]
    system = {"role": "system", "content": prompts.STRUCTURE}
    told.calls += 1
    told.sent += tokens([system, {"role": "user", "content": "\n".join(lines)[:cap]}])
    shown = known if cap is None else known[: within(lines, cap)]
    told.received += len(state_of(shown)) / CHARACTERS_PER_TOKEN


def state_of(facts: Sequence[Fact]) -> str:
    """The facts as records in Python, as UaC renders those that it files."""
    lines = []
    for number, fact in enumerate(facts, 1):
        _, class_name, fields = filed(fact.text)
        values = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        key = f"{class_name.lower()}-{number}"
        lines.append(f"    {class_name}(key={key!r}, {values}, sources=({number},)),")
    return "\n".join(lines)


def figures_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is compared: all tokens of a language model, in and out."""
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
