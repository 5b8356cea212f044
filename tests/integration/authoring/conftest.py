"""A scripted language model works on a user's log; its proposals are judged in this process.

Whole processes are in tests/acceptance/test_llm_worker.py.
"""

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry
from tests.edits import add, define, note
from tests.llm_server import (
    KEY,
    LlmServer,
    Protocol,
    Reply,
    Request,
    Said,
    Script,
    called,
    llm_server,
)
from tests.steps import append_texts
from workers import tasks
from workers.authoring.conversation import Conversation
from workers.llm.interface import Tool, ToolCall

Fields: TypeAlias = Callable[[str], dict[str, Any]]
LaneNow: TypeAlias = Callable[[], Lane]
Outcomes: TypeAlias = Callable[[], dict[int, str]]
Say: TypeAlias = Callable[..., list[int]]
Work: TypeAlias = Callable[..., LlmServer]
Meanwhile: TypeAlias = Callable[[Callable[[], object]], None]

TRIP = define("travel.Trip", to="str", starts_on="datetime.date")


def trip(source: int, **fields: Any) -> dict[str, Any]:
    """Return the edit that adds a trip because of an entry."""
    return add("travel.Trip", source, **{"to": "Rome", "starts_on": "2026-05-08", **fields})


@pytest.fixture(autouse=True)
def quick(settings: Settings, sandbox_worker: None) -> None:
    """Settings that avoid needless waits."""
    settings.UAC_LLM_TIMEOUT_SECONDS = 120.0
    settings.UAC_LLM_BACKOFF_SECONDS = 0.01
    settings.UAC_LLM_OUTPUT_TOKENS = 1000
    settings.UAC_LLM_API_KEY = KEY


@pytest.fixture
def say(user: MemoryUser) -> Say:
    """Append texts of a kind (messages, unless told otherwise); return their seqs."""
    return functools.partial(append_texts, user)


@pytest.fixture
def fact(say: Say) -> int:
    """A fact that waits.

    The day of the entry grounds dates, too: it must not be one of the tests' dates.
    """
    at = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    (seq,) = say("The user goes to Rome on 2026-05-08.", kind=EntryKind.FACT, occurred_at=at)
    return seq


@pytest.fixture
def work(settings: Settings, user: MemoryUser) -> Work:
    """Have a model process waiting entries with these replies; return the server."""

    def do(
        *replies: Reply, script: Script | None = None, protocol: Protocol = "openai"
    ) -> LlmServer:
        with llm_server(*replies, script=script) as server:
            settings.UAC_LLM_MODEL = f"{protocol}:the-model"
            settings.UAC_LLM_BASE_URL = server.url_of(protocol)
            now = timezone.now()
            Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(
                due_at=now, run_after=now
            )
            tasks.work("structure", user.pk)
        user.refresh_from_db()
        return server

    return do


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Run something, once, while the model answers its next question.

    It runs in this thread: the scripted server has another, which does not see the test's
    transaction.
    """

    def do(happens: Callable[[], object]) -> None:
        original = Conversation.ask
        waiting = [happens]

        def ask(conversation: Conversation, tools: Sequence[Tool]) -> Sequence[ToolCall]:
            calls = original(conversation, tools)
            if waiting:
                waiting.pop()()
            return calls

        monkeypatch.setattr(Conversation, "ask", ask)

    return do


@pytest.fixture
def lane(user: MemoryUser) -> LaneNow:
    """Return the model's lane as it is now."""
    return lambda: Lane.objects.get(user=user, name=LaneName.STRUCTURE)


@pytest.fixture
def outcomes(user: MemoryUser) -> Outcomes:
    """Return seq → outcome of every entry that has one."""
    return lambda: dict(EntryOutcome.objects.filter(user=user).values_list("seq", "outcome"))


def remembers(*facts: tuple[str, Sequence[int]]) -> Said:
    """Answer with facts and the messages that they come from."""
    found = [{"text": text, "sources": list(sources)} for text, sources in facts]
    return called("remember", {"facts": found})


def edits(*edits: dict[str, Any], **options: bool) -> Said:
    """Answer with edits."""
    return called("edit", {"edits": list(edits), **options})


def finishes() -> Said:
    """Answer that it is done."""
    return called("finish", {})


def refuses(text: str = "I cannot help with that.") -> Said:
    """Refuse to answer."""
    return Said(text=text, finish="refusal")


def asked(request: Request) -> str:
    """Return the question at the beginning of the conversation with the model."""
    text: str = request.body["messages"][1]["content"]
    return text


def numbers_in(text: str) -> list[int]:
    """Return the numbers of the entries that a text shows or, of a question, asks to bring in."""
    shown = text.rpartition("Entries to bring into it:\n")[2]
    return [int(seq) for seq in re.findall(r"^\[(\d+)\]", shown, re.MULTILINE)]


def facts() -> list[LogEntry]:
    """Return the facts of all logs, in order."""
    return list(LogEntry.objects.filter(kind=EntryKind.FACT).order_by("seq"))


def begins(request: Request) -> bool:
    return len(request.body["messages"]) == 2


def taking_notes(request: Request) -> Said:
    """A model that keeps every entry as a note."""
    if not begins(request):
        return finishes()
    shown = re.findall(r"^\[(\d+)\] \([^)]*\) (.{1,80})", asked(request), re.MULTILINE)
    return edits(*(note(text, int(seq)) for seq, text in shown))
