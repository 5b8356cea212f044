"""A chat with Claude, whose memory tool is the user's project.

`python -m userascode_agents.examples.claude_agent ada` needs `pip install
'userascode-agents[claude]'`, and in the environment UAC_URL, UAC_KEY and ANTHROPIC_API_KEY.
"""

import os
import sys

from anthropic import Anthropic

from userascode_agents import Memory, Message
from userascode_agents.claude import tools

client = Anthropic()
memory = Memory(sys.argv[1])
conversation: list[Message] = []

for line in sys.stdin:
    conversation.append(Message("user", line.strip()))
    answer = client.beta.messages.tool_runner(
        model=os.environ.get("MODEL", "claude-sonnet-5-5"),
        max_tokens=2000,
        betas=["context-management-2025-06-27"],
        thread=False,  # each request has the whole conversation
        system=memory.brief(conversation) or "You are a helpful assistant.",
        tools=tools(memory),
        messages=[{"role": one.role, "content": one.text} for one in conversation],
    ).until_done()
    text = "".join(block.text for block in answer.content if block.type == "text")
    conversation.append(Message("assistant", text))
    memory.remember_turn(conversation)
    print(text, flush=True)
