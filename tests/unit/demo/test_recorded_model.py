"""The demo's recorded model answers what it knows from what is shown, and refuses all else."""

import datetime
import json
import urllib.error
import urllib.request
import zoneinfo
from collections.abc import Sequence
from typing import Any

import pytest

from deploy.demo import person
from deploy.demo.recorded_model import (
    NAME,
    Recording,
    UnknownQuestion,
    answer,
    recorded_model,
    recordings,
)
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, LogEntry
from memory.project import Record, RecordId
from tests.waiting import scaled
from workers.authoring import memorize, prompts, tools
from workers.grounding.values_in_entries import Source, claims_of, ungrounded

USER = MemoryUser(time_zone=person.TIME_ZONE)
MARCH = datetime.datetime(2026, 3, 30, 9, tzinfo=datetime.UTC)

DENTIST = Recording(
    messages=["The dentist sees me on {day:+33}.", "It hurts."],
    facts=[{"text": "The user sees the dentist on {date:+33}.", "sources": ["{seq:dentist}"]}],
    work=[
        [{"name": "open_domain", "arguments": {"domain": "health"}}],
        [{"name": "edit", "arguments": {"sources": ["{seq:dentist}"], "on": "{date:+33}"}}],
    ],
)
CAT = Recording(
    messages=["The cat is back."],
    facts=[{"text": "The user's cat is back.", "sources": ["{seq:cat}"]}],
    work=[[{"name": "edit", "arguments": {"text": "see [{seq:cat}]"}}]],
)
KNOWN = [CAT, DENTIST]
FINISH = [{"name": "finish", "arguments": {}}]

Said = tuple[int, str]


def asked(
    shown: Sequence[Said],
    *,
    kind: EntryKind = EntryKind.MESSAGE,
    turns: int = 0,
    at: datetime.datetime = MARCH,
    before: str = "",
) -> dict[str, Any]:
    """Return a request as the server's worker makes it, with so many answers to it so far."""
    zone = zoneinfo.ZoneInfo(USER.time_zone)
    entries = [
        (LogEntry(seq=seq, kind=kind, occurred_at=at, role="user"), text) for seq, text in shown
    ]
    lines = prompts.lines(entries, zone)
    memorizing = kind == EntryKind.MESSAGE
    offered = (memorize.REMEMBER,) if memorizing else tools.TOOLS
    question = (
        prompts.messages(USER, lines, before, before, first=1)
        if memorizing
        else prompts.entries(prompts.project(USER, ""), before, lines)
    )
    return {
        "model": NAME.partition(":")[2],
        "messages": [
            {"role": "system", "content": "You keep the memory."},
            {"role": "user", "content": question},
            *[{"role": "assistant", "content": None, "tool_calls": []}] * turns,
        ],
        "tools": [{"type": "function", "function": {"name": tool.name}} for tool in offered],
    }


def test_messages_are_answered_with_facts_that_cite_them() -> None:
    (call,) = answer(asked([(7, "The dentist sees me on 2 May 2026."), (8, "It hurts.")]), KNOWN)

    facts = [{"text": "The user sees the dentist on 2026-05-02.", "sources": [7]}]
    assert call == {"name": "remember", "arguments": {"facts": facts}}


def test_facts_are_answered_turn_by_turn_until_it_finishes() -> None:
    shown = [(9, "The user sees the dentist on 2026-05-02.")]

    calls = [answer(asked(shown, kind=EntryKind.FACT, turns=turn), KNOWN) for turn in range(4)]

    assert calls == [
        [{"name": "open_domain", "arguments": {"domain": "health"}}],
        [{"name": "edit", "arguments": {"sources": [9], "on": "2026-05-02"}}],
        FINISH,
        FINISH,
    ]


def test_several_conversations_in_one_question_are_answered_together() -> None:
    shown = [(3, "The user sees the dentist on 2026-05-02."), (5, "The user's cat is back.")]

    calls = answer(asked(shown, kind=EntryKind.FACT), KNOWN)

    assert [call["name"] for call in calls] == ["open_domain", "edit"]
    assert calls[1]["arguments"] == {"text": "see [5]"}


def test_earlier_messages_of_the_session_are_not_asked() -> None:
    before = "[1] (message, 2026-03-30 Monday 11:00, user) Something else."

    (call,) = answer(asked([(2, "The cat is back.")], before=before), KNOWN)

    assert call["arguments"]["facts"][0]["sources"] == [2]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param([(1, "My dog is called Rex.")], id="unknown"),
        pytest.param([(1, "The cat is back."), (2, "My dog is called Rex.")], id="one-of-two"),
        pytest.param([(1, "It hurts.")], id="half-a-conversation"),
        pytest.param([(1, "The dentist sees me on 3 May 2026."), (2, "It hurts.")], id="other-day"),
    ],
)
def test_unrecorded_question_is_refused(shown: list[Said]) -> None:
    with pytest.raises(UnknownQuestion, match="set UAC_LLM_MODEL and UAC_LLM_API_KEY"):
        answer(asked(shown), KNOWN)


def test_model_speaks_the_protocol_and_refuses_by_400() -> None:
    # Given the model that the demo runs
    with recorded_model() as url:
        # When it is shown a message of the demo
        known = post(url, asked([(4, "I want to run a half marathon before I turn 35.")]))
        # Then it answers with a call, under its own name, and tokens
        (choice,) = known["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "remember"
        (fact,) = json.loads(call["function"]["arguments"])["facts"]
        assert fact["sources"] == [4]
        assert known["model"] == "recorded-for-the-demo"
        assert known["usage"]["prompt_tokens"] > known["usage"]["completion_tokens"] > 0
        # And when it is shown anything else, it says what it is
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(url, asked([(4, "My dog is called Rex.")]))
        with refused.value as error:
            told = json.load(error)["error"]["message"]
        assert (error.code, "knows only the demo's messages" in told) == (400, True)


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=scaled(120)) as response:
        return json.load(response)


@pytest.mark.parametrize("day", [datetime.date(2026, 11, 21), datetime.date(2028, 2, 29)])
@pytest.mark.parametrize("days", range(0, 366, 5))
def test_messages_are_known_on_any_day(day: datetime.date, days: int) -> None:
    life = person.life(day + datetime.timedelta(days=days))
    single = [[entry] for entry in life.months if entry["kind"] == "message"]
    known = recordings()
    for entries in [*single, life.lease, life.workshop]:
        at = datetime.datetime.fromisoformat(entries[0]["occurred_at"])
        said = list(enumerate((entry["content"] for entry in entries), 1))
        (call,) = answer(asked(said, at=at), known)
        facts = call["arguments"]["facts"]
        texts = list(enumerate((fact["text"] for fact in facts), 9))
        assert answer(asked(texts, kind=EntryKind.FACT, at=at, turns=9), known) == FINISH
        claims = [
            claims_of(
                RecordId("remember", "facts", str(number)),
                Record("Fact", str(number), {"text": fact["text"]}, tuple(fact["sources"])),
                None,
                {},
                ["text"],
            )
            for number, fact in enumerate(facts)
        ]
        sources = {seq: Source(seq, text, at) for seq, text in said}
        assert not [one for one in ungrounded(claims, sources, USER.time_zone) if one.blocking]
