"""LangChain: middleware for `create_agent`, which briefs the agent and remembers the exchange."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import SystemMessage
from langchain_core.runnables import ensure_config

from userascode_agents.langchain_tools import MemoryOf, conversation, memory_of_config, tools


class MemoryState(AgentState[Any]):
    """The state of an agent, with what it was told for this turn."""

    memory_brief: Annotated[str, PrivateStateAttr]


class MemoryMiddleware(AgentMiddleware[MemoryState, Any, Any]):
    """Gives an agent the memory of its user: context and alerts unasked, and the tools.

    The run's config says whose memory: `{"configurable": {"user_id": …, "thread_id": …}}`, or
    whatever your `memory_of` reads.
    """

    state_schema = MemoryState

    def __init__(self, memory_of: MemoryOf = memory_of_config) -> None:
        super().__init__()
        self.memory_of = memory_of
        self.tools = tools(memory_of)

    def before_agent(self, state: MemoryState, runtime: Any) -> dict[str, Any]:
        """Ask the memory what matters for the user's message."""
        memory = self.memory_of(ensure_config())
        return {"memory_brief": memory.brief(conversation(state["messages"]))}

    async def abefore_agent(self, state: MemoryState, runtime: Any) -> dict[str, Any]:
        """Ask the memory what matters for the user's message."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """Call the model with the brief at the end of the system prompt."""
        return handler(_briefed(request))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Call the model with the brief at the end of the system prompt."""
        return await handler(_briefed(request))

    def after_agent(self, state: MemoryState, runtime: Any) -> None:
        """Remember the exchange."""
        self.memory_of(ensure_config()).remember_turn(conversation(state["messages"]))

    async def aafter_agent(self, state: MemoryState, runtime: Any) -> None:
        """Remember the exchange."""
        await asyncio.to_thread(self.after_agent, state, runtime)


def _briefed(request: ModelRequest) -> ModelRequest:
    brief = request.state.get("memory_brief", "")
    if not brief:
        return request
    parts = [request.system_prompt, brief]
    return request.override(system_message=SystemMessage("\n\n".join(filter(None, parts))))
