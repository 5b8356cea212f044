"""A scripted language model works on a user's log; its proposals are judged in this process.

Whole processes are in tests/acceptance/test_language_model.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory import log
from memory.log import Draft
from memory.models import EntryOutcome, Lane, MemoryUser
from memory.models.log import EntryKind
from memory.models.users import LaneName
from tests.llm_server import KEY, LlmServer, Protocol, Reply, Said, Script, called, llm_server
from workers.authoring import lane as model_lane
from workers.authoring.conversation import Conversation
from workers.llm.interface import Tool, ToolCall

Say: TypeAlias = Callable[..., list[int]]
Work: TypeAlias = Callable[..., LlmServer]
Meanwhile: TypeAlias = Callable[[Callable[[], object]], None]


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

    def do(*texts: str, kind: EntryKind = EntryKind.MESSAGE, **fields: Any) -> list[int]:
        drafts = [Draft(kind=kind, content=text, **fields) for text in texts]
        return [entry.seq for entry in log.append(user, drafts, source="test")]

    return do


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
            model_lane.work_on(user.pk)
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
def lane(user: MemoryUser) -> Callable[[], Lane]:
    """Return the model's lane as it is now."""
    return lambda: Lane.objects.get(user=user, name=LaneName.STRUCTURE)


@pytest.fixture
def outcomes(user: MemoryUser) -> Callable[[], dict[int, str]]:
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
