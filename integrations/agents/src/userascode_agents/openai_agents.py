"""OpenAI Agents SDK: a session that remembers and briefs, and the tools."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agents import RunConfig, Session, SQLiteSession, Tool, function_tool
from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.run import CallModelData, ModelInputData

from userascode_agents.memory import Memory, Message


@dataclass
class MemorySession:
    """A session of the SDK whose exchange is remembered.

    `history` keeps the conversation itself, by default in this process. Run the agent with
    `session=session, run_config=session.run_config()`, which puts context and alerts into the turn.
    """

    memory: Memory
    history: Session = field(default_factory=lambda: SQLiteSession("conversation"))
    session_settings: SessionSettings | None = None

    @property
    def session_id(self) -> str:
        """The id of the conversation."""
        return self.memory.session_id

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the conversation's newest items."""
        return await self.history.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items to the conversation; with an answer, the memory gets the exchange."""
        await self.history.add_items(items)
        if any(one.role == "assistant" for one in conversation(items)):
            messages = conversation(await self.history.get_items())
            await asyncio.to_thread(self.memory.remember_turn, messages)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out of the conversation; the memory keeps it."""
        return await self.history.pop_item()

    async def clear_session(self) -> None:
        """Empty the conversation; the memory stays."""
        await self.history.clear_session()

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """Return a configuration whose model calls are briefed by the memory."""
        return replace(config or RunConfig(), call_model_input_filter=self._brief)

    async def _brief(self, data: CallModelData[Any]) -> ModelInputData:
        sent = data.model_data
        brief = await asyncio.to_thread(self.memory.brief, conversation(sent.input))
        instructions = "\n\n".join(filter(None, [sent.instructions, brief]))
        return ModelInputData(input=sent.input, instructions=instructions or None)


def tools(memory: Memory) -> list[Tool]:
    """Return the tools: remember, recall, compute, alerts."""
    return [function_tool(method) for method in memory.tools]


def conversation(items: Iterable[TResponseInputItem]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and prompts."""
    said = []
    for item in items:
        role, text = item.get("role"), _text(item.get("content"))
        if text and role == "user":
            said.append(Message("user", text))
        elif text and role == "assistant":
            said.append(Message("assistant", text))
    return said


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(str(part["text"]) for part in parts if part.get("text")).strip()
