"""A chat with a LangChain agent that has a memory.

`python -m userascode_agents.examples.langchain_agent ada` needs `pip install
'userascode-agents[langchain]' langchain-openai`, and in the environment UAC_URL, UAC_KEY and
OPENAI_API_KEY.
"""

import os
import sys
import uuid

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from userascode_agents.langchain import MemoryMiddleware

agent = create_agent(
    ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini")),
    system_prompt="You are a helpful assistant.",
    middleware=[MemoryMiddleware()],
    checkpointer=InMemorySaver(),
)

# Whose memory it is, and which conversation.
ids = {"user_id": sys.argv[1], "thread_id": str(uuid.uuid4())}
for line in sys.stdin:
    state = agent.invoke({"messages": [("user", line.strip())]}, {"configurable": ids})
    print(state["messages"][-1].text, flush=True)
