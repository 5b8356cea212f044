"""A workspace whose language model is a scripted server."""

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import time_machine
from cryptography.fernet import Fernet
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from tests.llm_server import KEY, LlmServer, Protocol, Reply, llm_server
from workers.llm.interface import Message, ModelAnswer, System, Tool, ToolResult, User
from workers.llm.metered import MeteredModel

PROTOCOLS: list[Protocol] = ["openai", "anthropic", "google"]

# A million input tokens cost 2, cached ones 1; a million output tokens cost 10.
PRICE = {"input": 2, "output": 10, "cache_read": 1}

REMEMBER = Tool(
    "remember",
    "Remember a fact.",
    {
        "type": "object",
        "properties": {"fact": {"type": "string"}, "day": {"type": "integer"}},
        "required": ["fact"],
        "additionalProperties": False,
    },
)
QUESTION: list[Message] = [System("You remember."), User("My dog is called Rex.")]

Connect: TypeAlias = Callable[..., MeteredModel]
Ask: TypeAlias = Callable[..., tuple[LlmServer, ModelAnswer]]

NOON = datetime.datetime(2026, 3, 30, 12, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def noon(request: pytest.FixtureRequest) -> Iterator[None]:
    """Travel to noon: spending is counted by the day, which must not end during a test."""
    if "caller" in request.fixturenames:  # whose processes go by the machine's clock
        yield
        return
    with time_machine.travel(NOON, tick=True):
        yield


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    """Settings that avoid needless waits."""
    settings.UAC_LLM_TIMEOUT_SECONDS = 20.0
    settings.UAC_LLM_BACKOFF_SECONDS = 0.01
    settings.UAC_LLM_OUTPUT_TOKENS = 1000
    settings.UAC_LLM_API_KEY = KEY
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]


@pytest.fixture
def connect(settings: Settings, workspace: Workspace, user: MemoryUser) -> Connect:
    """Make the server the language model of all workspaces; return a model for one's work."""

    def model(server: LlmServer, protocol: Protocol = "openai", **fields: Any) -> MeteredModel:
        settings.UAC_LLM_MODEL = f"{protocol}:the-model"
        settings.UAC_LLM_BASE_URL = server.url_of(protocol)
        settings.UAC_LLM_PRICES = json.dumps({settings.UAC_LLM_MODEL: PRICE})
        work = {"workspace": workspace, "purpose": LlmPurpose.MEMORIZE, "user": user, **fields}
        return MeteredModel(CallSession(**work))

    return model


@pytest.fixture
def ask(connect: Connect) -> Ask:
    """Ask a model that gives these replies once; return its server, and the answer."""

    def do(*replies: Reply, protocol: Protocol = "openai") -> tuple[LlmServer, ModelAnswer]:
        with llm_server(*replies) as server:
            return server, connect(server, protocol).complete(QUESTION)

    return do


def answer_calls(
    model: MeteredModel, first: ModelAnswer, *results: str, failed: bool = False
) -> ModelAnswer:
    """Go on after an answer with tool calls, whose results these are; return the next answer."""
    told = [
        ToolResult(call, result, failed=failed)
        for call, result in zip(first.tool_calls, results, strict=True)
    ]
    return model.complete([*QUESTION, first.message, *told], [REMEMBER])
