"""LangChain: the tools, and which memory a run is about. LangGraph uses the same."""

import inspect
from collections.abc import Callable, Iterable
from typing import TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools.base import create_schema_from_function

from userascode_agents.memory import Memory, Message

# Whose memory a run is about; `configurable` has the product's ids.
MemoryOf: TypeAlias = Callable[[RunnableConfig], Memory]


def memory_of_config(config: RunnableConfig) -> Memory:
    """Return the memory of the run's `user_id`, whose conversation is its `thread_id`."""
    ids = config.get("configurable", {})
    if not ids.get("user_id"):
        raise ValueError('Say whose memory it is: config={"configurable": {"user_id": "ada"}}.')
    return Memory(str(ids["user_id"]), session_id=ids.get("thread_id"))


def tools(memory_of: MemoryOf = memory_of_config) -> list[BaseTool]:
    """Return the tools: remember, recall, compute, alerts."""
    methods = (Memory.remember, Memory.recall, Memory.compute, Memory.alerts)
    return [_tool(method, memory_of) for method in methods]


def _tool(method: Callable[..., str], memory_of: MemoryOf) -> BaseTool:
    def call(config: RunnableConfig, **arguments: str) -> str:
        return method(memory_of(config), **arguments)

    name = method.__name__
    schema = create_schema_from_function(
        name, method, filter_args=("self",), parse_docstring=True, error_on_invalid_docstring=False
    )
    description = (inspect.getdoc(method) or "").partition("\n\nArgs:")[0]
    return StructuredTool.from_function(
        call, name=name, description=description, args_schema=schema
    )


def conversation(messages: Iterable[BaseMessage]) -> list[Message]:
    """Return what user and assistant said, without tool calls, their results and prompts."""
    said = []
    for message in messages:
        text = str(message.text).strip()
        if text and isinstance(message, HumanMessage):
            said.append(Message("user", text))
        elif text and isinstance(message, AIMessage):
            said.append(Message("assistant", text))
    return said
