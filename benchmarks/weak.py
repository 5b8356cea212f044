"""Measure the harm that a model without understanding does to true records, alerts and entries.

Users start with a true state: typed records, constraints and open critical alerts. Models that
cannot be trusted then work on these users, through the real lane for the language model and the
real gate, with process sandboxes:
- a parrot, which makes valid tool calls with random snippets of the prompt as arguments; the same
  seed gives the same calls. It knows the places and fields of the true records, like a model that
  has opened them.
- recorded answers typical of weak models: the example in the instructions, generic statements,
  values chosen only by type, everything dismissed, everything overwritten.
- scripted attacks, one by one: a message or fact, and a model that obeys it.

What remains of the true state is read from the project and the alerts, by code that is independent
of the gate. A record is nonsense if it is not one of the true records and fewer than a third of its
longer words occur in the entries that it cites. An entry is recoverable if it is pending, or
becomes pending when it is reopened.

The share of true facts that the gate refuses because of their words is measured on the facts that a
real model found in recorded conversations (`locomo.json` and `locomo_facts.json` in UAC_DATA_DIR).
Each fact is compared with every message of its session, and must be supported by one of them. As a
contrast, random snippets of messages are offered as facts from other messages, and those that are
accepted are counted.
"""

import datetime
import json
import logging
import random
import re
import time
import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.filing_rules import read_facts
from benchmarks.harness import Row, embedded_server, migrate, parser, report, require_data
from benchmarks.weak_attacks import ATTACKS
from benchmarks.weak_models import WEAK, Parrot, scripted
from benchmarks.weak_state import SMALL_TALK, World, carry_out
from tests.llm_server import KEY, Request, Said, llm_server

if TYPE_CHECKING:
    from memory.kernel.models.workspaces import Workspace
    from workers.grounding.values_in_entries import Source

SEED = 20260301
# Matches sentences that the recorded model wrote before its facts, such as "The current date is
# January 20, 2023."
PREAMBLE = re.compile(
    r"(?:The (?:current (?:date|time)|conversation (?:occur|t[ao]+k)|session (?:date|occur)"
    r"|date of the)"
    r"|This conversation occur|Based on the conversation|As of .*\bfacts\b|Below is)"
)
# The number of sessions in which the parrot works on the same user.
SESSIONS_OF_A_USER = 10
FOUND_IN = {"facts": "true facts", "preambles": "preambles of the recording"}
# A session with more calls to the model than this counts as endless.
MAX_CALLS = 200


@dataclass
class Driver:
    """Lets models work on users, and counts their calls and the damage that they do."""

    workspace: "Workspace"
    calls: int = 0
    most_calls: int = 0
    damage: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    reply: Callable[[Request], Said] = lambda request: Said(text="")

    def answer(self, request: Request) -> Said:
        """Answer a request as the current model would, and count the call."""
        self.calls += 1
        return self.reply(request)

    def session(
        self,
        world: World,
        reply: Callable[[Request], Said],
        texts: Sequence[str],
        *,
        as_facts: bool,
        name: str,
    ) -> bool:
        """Append entries for a user and have the model work on them.

        Returns whether the user's true state is still intact.
        """
        from django.utils import timezone

        from memory.kernel.models.users import Lane, LaneName
        from memory.log import entry_log
        from memory.log.entry_log import Draft
        from memory.log.models.entries import EntryKind
        from workers import tasks

        kind = EntryKind.FACT if as_facts else EntryKind.MESSAGE
        drafts = [
            Draft(kind=kind, content=text, session_id=None if as_facts else name) for text in texts
        ]
        entry_log.append(world.user, drafts, source="benchmark")
        self.reply, before = reply, self.calls
        now = timezone.now()
        lanes = Lane.objects.filter(user=world.user, name=LaneName.STRUCTURE)
        lanes.update(due_at=now, run_after=now, attempts=0)
        tasks.work("structure", world.user.pk)
        self.most_calls = max(self.most_calls, self.calls - before)
        found = world.damage()
        harm = {
            what: found[what]
            for what in ("true_records_changed", "critical_alerts_silenced")
            if found[what]
        }
        if harm:
            self.problems.append(f"{name}: {harm}")
            self.damage.update(harm)
        return not harm

    def leave(self, world: World, name: str) -> None:
        """Count the nonsense records and lost entries that a user is left with at the end."""
        found = world.damage()
        nonsense, kept = found["nonsense_records_live"], found["records_live"]
        lost = world.unrecoverable()
        self.damage.update({
            "records_live": kept, "nonsense_records_live": nonsense, "entries_unrecoverable": lost
        })  # fmt: skip
        if nonsense or lost:
            self.problems.append(f"{name}: {nonsense} records are nonsense, {lost} entries lost")


def parrots(driver: Driver, sessions: int) -> dict[str, Any]:
    """Run the parrot for `sessions` sessions, up to ten with each user."""
    chance = random.Random(SEED)
    parrot = Parrot(chance)
    number = 0
    while number < sessions:
        world = World.create(driver.workspace, f"parrot-{number}")
        for _ in range(min(SESSIONS_OF_A_USER, sessions - number)):
            texts = chance.sample(SMALL_TALK, 3)
            name = f"parrot {number}"
            is_well = driver.session(world, parrot, texts, as_facts=number % 2 == 1, name=name)
            number += 1
            if not is_well:
                break
        driver.leave(world, f"parrot-{number}")
    return {"model": "parrot", "sessions": number}


def weak_models(driver: Driver, limit: int | None) -> dict[str, Any]:
    """Give each kind of recorded answer to messages and to facts, with a new user for each kind."""
    some = list(WEAK.items())[:limit]
    for name, answers in some:
        world = World.create(driver.workspace, f"weak-{name.replace(' ', '-')}")
        for as_facts in (False, True):
            texts = SMALL_TALK[:3]
            driver.session(world, scripted(*answers), texts, as_facts=as_facts, name=name)
        driver.leave(world, name)
    return {"model": "recorded answers", "sessions": 2 * len(some)}


def attacks(driver: Driver, limit: int | None) -> dict[str, Any]:
    """Try every attack; after one that does damage, continue with a new user."""
    world: World | None = None
    some = ATTACKS[:limit]
    for number, attack in enumerate(some):
        world = world or World.create(driver.workspace, f"attacked-{number}")
        is_well = driver.session(
            world,
            attack.reply,
            [attack.says],
            as_facts=not attack.is_message,
            name=f"{attack.kind}: {attack.name}",
        )
        if not is_well:
            driver.leave(world, attack.name)
            world = None
    if world is not None:
        driver.leave(world, "attacks")
    return {"model": "scripted attacks", "sessions": len(some)}


def recorded_sessions(
    conversations: Sequence[Mapping[str, Any]], limit: int | None = None
) -> Iterator[tuple[list["Source"], list[str]]]:
    """Yield the messages of each session, and the facts in it; `limit` is per conversation."""
    from workers.grounding.values_in_entries import Source

    known = read_facts()
    for one in conversations:
        conversation = one["conversation"]
        by_session: dict[str, list[str]] = defaultdict(list)
        for fact in known.get(one["sample_id"], [])[:limit]:
            by_session[fact.session].append(fact.text)
        for session, texts in by_session.items():
            at = datetime.datetime.strptime(
                conversation[f"{session}_date_time"], "%I:%M %p on %d %B, %Y"
            ).replace(tzinfo=datetime.UTC)
            messages = []
            for seq, turn in enumerate(conversation[session], 1):
                text = f"{turn['text']} {turn.get('blip_caption', '')}"
                messages.append(Source(seq, text, at, speaker=turn["speaker"]))
            yield messages, texts


def true_facts(limit: int | None) -> tuple[list[Row], dict[str, Any]]:
    """Check which recorded facts the gate considers supported by the messages of their session.

    Also check random snippets of messages against random other messages.
    """
    from workers.grounding.wording_in_entries import Wording

    zone = zoneinfo.ZoneInfo("UTC")
    chance = random.Random(SEED)
    locomo, _ = require_data("locomo.json", "locomo_facts.json")
    conversations = json.loads(locomo.read_text())
    said = [
        turn["text"]
        for one in conversations
        for turns in one["conversation"].values()
        if isinstance(turns, list)
        for turn in turns
    ]
    count: Counter[str] = Counter()
    for messages, texts in recorded_sessions(conversations, limit):
        turns = [Wording([message], zone) for message in messages]
        for text in texts:
            kind = "preambles" if PREAMBLE.match(text) else "facts"
            count[kind] += 1
            count[f"{kind}_refused"] += not any(turn.supports(text) for turn in turns)
            words = chance.choice(said).split()
            length = chance.randint(3, 15)
            start = chance.randrange(max(1, len(words) - length))
            snatch = " ".join(words[start : start + length])
            count["snatches"] += 1
            count["snatches_accepted"] += chance.choice(turns).supports(snatch)
    rows = [
        {"model": name, "sessions": count[kind], "refused": count[f"{kind}_refused"]}
        for kind, name in FOUND_IN.items()
    ]
    return rows, {
        "true_facts": count["facts"],
        "true_facts_refused_share": round(count["facts_refused"] / max(1, count["facts"]), 4),
        "snatches_accepted_share": round(count["snatches_accepted"] / max(1, count["snatches"]), 3),
    }


def main() -> None:
    """Run all parts and report the results."""
    asked = parser(
        __doc__, sessions=(200, 2), attacks=(None, 3), weak=(None, 2), facts=(None, 200)
    ).parse_args()
    require_data("locomo.json", "locomo_facts.json")
    started = time.monotonic()
    with llm_server(script=lambda request: driver.answer(request)) as server:
        settings = {
            "UAC_LLM_MODEL": "openai:weak",
            "UAC_LLM_BASE_URL": server.openai_url,
            "UAC_LLM_API_KEY": KEY,
            "UAC_LLM_BACKOFF_SECONDS": "0.01",
        }
        with embedded_server("process", **settings) as services:
            migrate(services)
            logging.disable(logging.WARNING)
            from memory.kernel.models.workspaces import Workspace
            from memory.versions import runs

            driver = Driver(Workspace.objects.create(name="weak"))
            rows, figures = true_facts(asked.facts)
            with mock.patch.object(runs, "wait", lambda run, seconds: carry_out(run)):
                for part in (
                    attacks(driver, asked.attacks),
                    weak_models(driver, asked.weak),
                    parrots(driver, asked.sessions),
                ):
                    rows.append(part)
    names = (
        *("true_records_changed", "critical_alerts_silenced"),
        *("nonsense_records_live", "entries_unrecoverable", "records_live"),
    )
    figures = {
        **{name: driver.damage[name] for name in names},
        **figures,
        "sessions": sum(row["sessions"] for row in rows[len(FOUND_IN) :]),
        "calls": driver.calls,
        "most_calls_of_a_session": driver.most_calls,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    if driver.most_calls > MAX_CALLS:
        driver.problems.append(f"a session took {driver.most_calls} calls")
    rows = [{"model": "", "sessions": "", "refused": "", **row} for row in rows]
    report(
        "weak",
        settings={"seed": SEED, "runner": "process", "attacks": len(ATTACKS)},
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=driver.problems,
    )


if __name__ == "__main__":
    main()
