"""A chat with a LlamaIndex agent that has a memory.

`python -m userascode_agents.examples.llama_index_agent ada` needs `pip install
'userascode-agents[llama-index]' llama-index-llms-openai`, and in the environment UAC_URL, UAC_KEY
and OPENAI_API_KEY.
"""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory as LlamaMemory
from llama_index.llms.openai import OpenAI

from userascode_agents import Memory
from userascode_agents.llama_index import UserMemoryBlock, tools


async def main() -> None:
    """Answer each line of the input."""
    memory = Memory(sys.argv[1])
    agent = FunctionAgent(
        tools=tools(memory),
        llm=OpenAI(model=os.environ.get("MODEL", "gpt-5-mini")),
        system_prompt="You are a helpful assistant.",
        streaming=False,
    )
    conversation = LlamaMemory.from_defaults(memory_blocks=[UserMemoryBlock(memory=memory)])
    for line in sys.stdin:
        print(await agent.run(line.strip(), memory=conversation), flush=True)


asyncio.run(main())
