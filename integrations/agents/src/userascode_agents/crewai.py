"""CrewAI: an agent that is briefed before it works and remembers the exchange, and the tools."""

import asyncio
from typing import Any

from crewai import Agent, Task
from crewai.tools import BaseTool, tool
from pydantic import ConfigDict, SkipValidation

from userascode_agents.memory import Memory, Message


class MemoryAgent(Agent):
    """An agent with the memory of its user, alone (`kickoff`) or in a crew.

    In a crew, a task's description is what the user says. The tools are the memory's own:
    `tools=tools(memory)`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    user_memory: SkipValidation[Memory]

    def kickoff(self, messages: str | list[Any], *args: Any, **options: Any) -> Any:
        """Answer messages of a conversation. In a flow, this returns a coroutine."""
        if not isinstance(messages, str) and not messages:
            return super().kickoff(messages, *args, **options)
        said = conversation(messages)
        output = super().kickoff(self._briefed(messages, said), *args, **options)
        if not asyncio.iscoroutine(output):
            self._remember(said, output.raw)
            return output

        async def wait() -> Any:
            answer = await output
            await asyncio.to_thread(self._remember, said, answer.raw)
            return answer

        return wait()

    async def kickoff_async(self, messages: str | list[Any], *args: Any, **options: Any) -> Any:
        """Answer messages of a conversation."""
        said = conversation(messages)
        briefed = await asyncio.to_thread(self._briefed, messages, said)
        output = await super().kickoff_async(briefed, *args, **options)
        await asyncio.to_thread(self._remember, said, output.raw)
        return output

    def execute_task(
        self, task: Task, context: str | None = None, tools: list[BaseTool] | None = None
    ) -> Any:
        """Do a task of a crew."""
        said = [Message("user", task.description)]
        output = super().execute_task(task, self._with_brief(context, said), tools)
        self._remember(said, str(output))
        return output

    async def aexecute_task(
        self, task: Task, context: str | None = None, tools: list[BaseTool] | None = None
    ) -> Any:
        """Do a task of a crew."""
        said = [Message("user", task.description)]
        context = await asyncio.to_thread(self._with_brief, context, said)
        output = await super().aexecute_task(task, context, tools)
        await asyncio.to_thread(self._remember, said, str(output))
        return output

    def _with_brief(self, context: str | None, said: list[Message]) -> str | None:
        parts = filter(None, [context, self.user_memory.brief(said)])
        return "\n\n".join(parts) or None

    def _briefed(self, messages: str | list[Any], said: list[Message]) -> str | list[Any]:
        brief = self.user_memory.brief(said)
        if not brief:
            return messages
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return [{"role": "system", "content": brief}, *asked]

    def _remember(self, said: list[Message], answer: str) -> None:
        self.user_memory.remember_turn([*said, Message("assistant", answer)])


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
