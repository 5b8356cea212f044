"""A chat with a LangGraph agent that has a memory.

`python -m userascode_agents.examples.langgraph_agent ada` needs `pip install
'userascode-agents[langgraph]' langchain-openai`, and in the environment UAC_URL, UAC_KEY and
OPENAI_API_KEY.
"""

import os
import sys
import uuid
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode

from userascode_agents.langchain_tools import tools
from userascode_agents.langgraph import MemoryState, brief, remember

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini")).bind_tools(tools())


def answer(state: MemoryState) -> dict[str, Any]:
    """Ask the model, with the memory in its prompt."""
    prompt = SystemMessage(f"You are a helpful assistant.\n\n{state['memory']}")
    return {"messages": [model.invoke([prompt, *state["messages"]])]}


def next_node(state: MemoryState) -> str:
    """Return where a graph goes on after an answer."""
    return "tools" if state["messages"][-1].tool_calls else "remember"


graph = StateGraph(MemoryState)
graph.add_node("brief", brief)
graph.add_node("answer", answer)
graph.add_node("tools", ToolNode(tools()))
graph.add_node("remember", remember)
graph.add_edge(START, "brief")
graph.add_edge("brief", "answer")
graph.add_conditional_edges("answer", next_node, ["tools", "remember"])
graph.add_edge("tools", "answer")
agent = graph.compile(checkpointer=InMemorySaver())

# Whose memory it is, and which conversation.
ids = {"user_id": sys.argv[1], "thread_id": str(uuid.uuid4())}
for line in sys.stdin:
    state = agent.invoke({"messages": [("user", line.strip())]}, {"configurable": ids})
    print(state["messages"][-1].text, flush=True)
