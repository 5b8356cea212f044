"""A chat with a CrewAI agent that has a memory.

`python -m userascode_agents.examples.crewai_agent ada` needs `pip install
'userascode-agents[crewai]'`, and in the environment UAC_URL, UAC_KEY and OPENAI_API_KEY.
"""

import os
import sys

from crewai import LLM
from crewai.events.utils.console_formatter import set_suppress_console_output

from userascode_agents import Memory
from userascode_agents.crewai import MemoryAgent, tools

set_suppress_console_output(True)  # CrewAI's own panels
memory = Memory(sys.argv[1])
agent = MemoryAgent(
    role="assistant",
    goal="Help the user.",
    backstory="You are a helpful assistant.",
    llm=LLM(model=f"openai/{os.environ.get('MODEL', 'gpt-5-mini')}"),
    user_memory=memory,
    tools=tools(memory),
)
conversation = []
for line in sys.stdin:
    conversation.append({"role": "user", "content": line.strip()})
    answer = agent.kickoff(conversation).raw
    conversation.append({"role": "assistant", "content": answer})
    print(answer, flush=True)
