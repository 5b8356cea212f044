"""CrewAI: an agent that is briefed before it works and remembers the exchange, and the tools."""

import asyncio
import uuid
from typing import Any

from crewai import Agent, Task
from crewai.tools import BaseTool, tool
from crewai.utilities.agent_utils import is_inside_event_loop
from pydantic import ConfigDict, SkipValidation

from userascode_agents.memory import INSTRUCTIONS, Memory, Message


class MemoryAgent(Agent):
    """An agent with the memory of its user, alone (`kickoff`) or in a crew.

    In a crew, a task's description is what the user says. The tools are the memory's own:
    `tools=tools(memory)`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    user_memory: SkipValidation[Memory]

    def kickoff(self, messages: str | list[Any], *args: Any, **options: Any) -> Any:
        """Answer messages of a conversation. In a flow, this returns a coroutine."""
        if is_inside_event_loop():
            return self.kickoff_async(messages, *args, **options)
        said, turn_id = conversation(messages), _turn_id(messages)
        output = super().kickoff(self._briefed(messages, said, turn_id), *args, **options)
        self._remember(said, output.raw, turn_id)
        return output

    async def kickoff_async(self, messages: str | list[Any], *args: Any, **options: Any) -> Any:
        """Answer messages of a conversation."""
        said, turn_id = conversation(messages), _turn_id(messages)
        briefed = await asyncio.to_thread(self._briefed, messages, said, turn_id)
        output = await super().kickoff_async(briefed, *args, **options)
        await asyncio.to_thread(self._remember, said, output.raw, turn_id)
        return output

    def execute_task(
        self, task: Task, context: str | None = None, tools: list[BaseTool] | None = None
    ) -> Any:
        """Do a task of a crew, or try it again."""
        said, turn_id = [Message("user", task.description)], _turn_id(task)
        output = super().execute_task(task, self._with_brief(context, said, turn_id), tools)
        self._remember(said, str(output), turn_id)
        return output

    async def aexecute_task(
        self, task: Task, context: str | None = None, tools: list[BaseTool] | None = None
    ) -> Any:
        """Do a task of a crew, or try it again."""
        said, turn_id = [Message("user", task.description)], _turn_id(task)
        context = await asyncio.to_thread(self._with_brief, context, said, turn_id)
        output = await super().aexecute_task(task, context, tools)
        await asyncio.to_thread(self._remember, said, str(output), turn_id)
        return output

    def _with_brief(self, context: str | None, said: list[Message], turn_id: str) -> str | None:
        if context and INSTRUCTIONS in context:  # CrewAI retries with the context of the first try
            return context
        parts = filter(None, [context, self.user_memory.brief(said, turn_id)])
        return "\n\n".join(parts) or None

    def _briefed(
        self, messages: str | list[Any], said: list[Message], turn_id: str
    ) -> str | list[Any]:
        brief = self.user_memory.brief(said, turn_id)
        if not brief:
            return messages
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return [{"role": "system", "content": brief}, *asked]

    def _remember(self, said: list[Message], answer: str, turn_id: str) -> None:
        self.user_memory.remember_turn([*said, Message("assistant", answer)], turn_id)


def _turn_id(asked: str | list[Any] | Task) -> str:
    """Return an id of a turn that has no conversation before it; otherwise an empty string.

    Retries of a task have its start.
    """
    if isinstance(asked, Task):
        return f"{asked.id} {asked.start_time}"
    return str(uuid.uuid4()) if isinstance(asked, str) else ""


def tools(memory: Memory) -> list[BaseTool]:
    """Return the tools: remember, recall, compute, alerts."""
    return [tool(method.__name__)(method) for method in memory.tools]


def conversation(messages: str | list[Any]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and prompts."""
    if isinstance(messages, str):
        return [Message("user", messages)]
    said = []
    for message in messages:
        text = message.get("content")
        if not isinstance(text, str) or not text.strip():
            continue
        if message["role"] == "user":
            said.append(Message("user", text.strip()))
        elif message["role"] == "assistant":
            said.append(Message("assistant", text.strip()))
    return said
