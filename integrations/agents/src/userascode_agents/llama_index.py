"""LlamaIndex: a memory block that briefs the agent and remembers the exchange, and the tools."""

import asyncio
from collections.abc import Iterable
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.tools import BaseTool, FunctionTool
from pydantic import SkipValidation

from userascode_agents.memory import Memory, Message


class UserMemoryBlock(BaseMemoryBlock[str]):
    """Gives an agent the memory of its user, beside the conversation that LlamaIndex keeps.

    `LlamaMemory.from_defaults(memory_blocks=[UserMemoryBlock(memory=memory)])`, where `LlamaMemory`
    is `llama_index.core.memory.Memory`.
    """

    name: str = "user"
    # What is known of the user is never cut: its own limit is `tokens` of the memory.
    priority: int = 0
    memory: SkipValidation[Memory]

    async def _aget(self, messages: list[ChatMessage] | None = None, **kwargs: Any) -> str:
        """Return the brief for the conversation. It is read after each answer, too."""
        spoken = conversation(messages or [])
        if spoken and spoken[-1].role == "assistant":
            await asyncio.to_thread(self.memory.remember_turn, spoken)
        return await asyncio.to_thread(self.memory.brief, spoken)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Do nothing: what LlamaIndex drops from the conversation has been remembered."""


def tools(memory: Memory) -> list[BaseTool]:
    """Return the tools: remember, recall, compute, alerts."""
    return [FunctionTool.from_defaults(method) for method in memory.tools]


def conversation(messages: Iterable[ChatMessage]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and prompts."""
    said = []
    for message in messages:
        text = (message.content or "").strip()
        if text and message.role == MessageRole.USER:
            said.append(Message("user", text))
        elif text and message.role == MessageRole.ASSISTANT:
            said.append(Message("assistant", text))
    return said
