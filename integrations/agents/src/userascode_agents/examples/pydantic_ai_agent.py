"""A chat with a Pydantic AI agent that has a memory.

`python -m userascode_agents.examples.pydantic_ai_agent ada` needs `pip install
'userascode-agents[pydantic-ai]' 'pydantic-ai-slim[openai]'`, and in the environment UAC_URL,
UAC_KEY and OPENAI_API_KEY.
"""

import os
import sys

from pydantic_ai import Agent

from userascode_agents import Memory
from userascode_agents.pydantic_ai import UserMemory

agent = Agent(
    f"openai-chat:{os.environ.get('MODEL', 'gpt-5-mini')}",
    instructions="You are a helpful assistant.",
    capabilities=[UserMemory(Memory(sys.argv[1]))],
)

history = None
for line in sys.stdin:
    result = agent.run_sync(line.strip(), message_history=history)
    history = result.all_messages()
    print(result.output, flush=True)
