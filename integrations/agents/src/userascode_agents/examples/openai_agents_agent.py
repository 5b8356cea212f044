"""A chat with an agent of the OpenAI Agents SDK.

`python -m userascode_agents.examples.openai_agents_agent ada` needs `pip install
'userascode-agents[openai-agents]'`, and in the environment UAC_URL, UAC_KEY and OPENAI_API_KEY.
"""

import os
import sys

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled

from userascode_agents import Memory
from userascode_agents.openai_agents import MemorySession, tools

# Many servers that are compatible with OpenAI's have this API alone, and no traces.
set_default_openai_api("chat_completions")
set_tracing_disabled(True)

memory = Memory(sys.argv[1])
session = MemorySession(memory)
agent = Agent(
    name="Assistant",
    instructions="You are a helpful assistant.",
    model=os.environ.get("MODEL", "gpt-5-mini"),
    tools=tools(memory),
)

for line in sys.stdin:
    result = Runner.run_sync(agent, line.strip(), session=session, run_config=session.run_config())
    print(result.final_output, flush=True)
