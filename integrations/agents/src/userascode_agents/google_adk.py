"""Google ADK: a plugin that briefs the agent and remembers the exchange, tools, and a service."""

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.session import Session
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from userascode_agents.memory import MAX_QUERY, Memory, Message, default_client


@lru_cache(maxsize=256)
def memory_of(user_id: str, session_id: str) -> Memory:
    """Return the memory of a user of the app, for one of the sessions."""
    return Memory(user_id, session_id=session_id)


class UserMemoryPlugin(BasePlugin):
    """Gives all agents of an app the memory of the session's user, unasked."""

    def __init__(self) -> None:
        super().__init__(name="userascode")

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        """Put context and alerts at the end of the instructions."""
        session = callback_context.session
        memory = memory_of(session.user_id, session.id)
        if brief := await asyncio.to_thread(memory.brief, conversation(session.events)):
            llm_request.append_instructions([brief])

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Remember the exchange."""
        session = invocation_context.session
        memory = memory_of(session.user_id, session.id)
        await asyncio.to_thread(memory.remember_turn, conversation(session.events))


class UserMemoryService(BaseMemoryService):
    """What ADK's own tools, such as `load_memory`, search; the key's workspace is the app's."""

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember each turn of a session, once."""
        memory, said = memory_of(session.user_id, session.id), conversation(session.events)
        for end in range(1, len(said) + 1):
            if end == len(said) or (said[end].role, said[end - 1].role) == ("user", "assistant"):
                await asyncio.to_thread(memory.remember_turn, said[:end])

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Find what was said or recorded, by words and by meaning."""
        user = default_client().user(user_id)
        found = await asyncio.to_thread(user.search, query[:MAX_QUERY], top_k=10)
        return SearchMemoryResponse(
            memories=[
                MemoryEntry(
                    id=str(hit.seq),
                    content=types.Content(parts=[types.Part(text=hit.text)]),
                    author=hit.speaker or hit.role or hit.kind,
                    timestamp=hit.occurred_at.isoformat(),
                )
                for hit in found.hits
            ]
        )


def remember(text: str, tool_context: ToolContext) -> str:  # noqa: D103
    return _memory(tool_context).remember(text)


def recall(query: str, tool_context: ToolContext) -> str:  # noqa: D103
    return _memory(tool_context).recall(query)


def compute(code: str, tool_context: ToolContext) -> str:  # noqa: D103
    return _memory(tool_context).compute(code)


def alerts(tool_context: ToolContext) -> str:  # noqa: D103
    return _memory(tool_context).alerts()


TOOLS = [remember, recall, compute, alerts]
for _tool in TOOLS:  # what the model reads of them
    _tool.__doc__ = getattr(Memory, _tool.__name__).__doc__


def _memory(context: ToolContext) -> Memory:
    return memory_of(context.session.user_id, context.session.id)


def conversation(events: Iterable[Event]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and thoughts."""
    said = []
    for event in events:
        parts: list[Any] = (event.content and event.content.parts) or []
        text = "".join(part.text for part in parts if part.text and not part.thought).strip()
        if text:
            said.append(Message("user" if event.author == "user" else "assistant", text))
    return said
