"""LangGraph: nodes before and after the model, for a graph of your own.

The tools are in `langchain_tools`, and a store in `langgraph_store`.
"""

from langchain_core.runnables import RunnableConfig
from langgraph.graph import MessagesState

from userascode_agents.langchain_tools import conversation, memory_of_config


class MemoryState(MessagesState):
    """A state with `memory`, the text that belongs into the system prompt of this turn."""

    memory: str


def brief(state: MemoryState, config: RunnableConfig) -> dict[str, str]:
    """Node before the model: put context and alerts for the user's message into `memory`."""
    return {"memory": memory_of_config(config).brief(conversation(state["messages"]))}


def remember(state: MemoryState, config: RunnableConfig) -> None:
    """Node after the model: remember the exchange."""
    memory_of_config(config).remember_turn(conversation(state["messages"]))
