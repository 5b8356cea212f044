"""Pydantic AI: a capability that briefs the agent, remembers the exchange and has the tools."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import FunctionToolset

from userascode_agents.memory import Memory, Message


@dataclass
class UserMemory(AbstractCapability[Any]):
    """Gives an agent the memory of its user: `Agent(…, capabilities=[UserMemory(memory)])`.

    For an agent with many users, `memory` is a function of the run's context:
    `UserMemory(lambda context: Memory(context.deps.user_id))`.
    """

    memory: Memory | Callable[[RunContext[Any]], Memory]

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return the capability for the user of this run."""
        memory = self.memory if isinstance(self.memory, Memory) else self.memory(ctx)
        return _Turn(memory)


@dataclass
class _Turn(AbstractCapability[Any]):
    """The memory during one run."""

    memory: Memory

    def get_instructions(self) -> Any:
        """Return what reads the memory for each call of the model."""
        return self._brief

    async def _brief(self, ctx: RunContext[Any]) -> str:
        return await asyncio.to_thread(self.memory.brief, conversation(ctx.messages))

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools."""
        return FunctionToolset(self.memory.tools, id="userascode")

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Remember the exchange."""
        messages = conversation(result.all_messages())
        await asyncio.to_thread(self.memory.remember_turn, messages)
        return result


def conversation(messages: Iterable[ModelMessage]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and prompts."""
    said = []
    for message in messages:
        if isinstance(message, ModelRequest):
            prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
            said += [Message("user", text) for part in prompts if (text := _text(part))]
        elif isinstance(message, ModelResponse):
            texts = [part.content for part in message.parts if isinstance(part, TextPart)]
            if text := "".join(texts).strip():
                said.append(Message("assistant", text))
    return said


def _text(part: UserPromptPart) -> str:
    contents = [part.content] if isinstance(part.content, str) else part.content
    return "\n".join(one for one in contents if isinstance(one, str)).strip()
