"""mem0's own memory for LlamaIndex with this server's address, as docs/mem0.md has it."""

import json
import os

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.memory.mem0 import Mem0Memory
from mem0 import MemoryClient

client = MemoryClient(api_key=os.environ["UAC_KEY"], host=f"{os.environ['UAC_URL']}/mem0")
memory = Mem0Memory(
    client=client, context={"user_id": "kurt"}, primary_memory=Memory.from_defaults()
)
memory.put(ChatMessage(role="user", content="I like green tea."))
prompt, _ = memory.get(input="What tea do I like?")
print(json.dumps({"prompt": prompt.content}))
