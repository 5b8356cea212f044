"""UaC's memory in the turns of an agent: context and alerts unasked, and tools to compute.

`Memory` works with any agent; each framework has a module of its own, such as
`userascode_agents.langgraph`, which needs the extra of that name.
"""

from userascode_agents.memory import Memory, Message

__all__ = ["Memory", "Message"]
