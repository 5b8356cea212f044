"""Tasks and questions that CrewAI repeats, run in an environment that has it."""

import asyncio
import json
from typing import Any

from crewai import BaseLLM, Crew, Task
from userascode_agents import Memory
from userascode_agents.crewai import MemoryAgent
from userascode_agents.memory import INSTRUCTIONS

MODEL = "scripted"


class Model(BaseLLM):  # type: ignore[misc] # CrewAI is not installed where types are checked
    """A model that repeats how many it was told to fail, and answers all else."""

    prompts: list[str] = []
    failures: int = 0

    def call(self, messages: Any, *args: Any, **options: Any) -> str:
        """Answer, or fail as often as is left to."""
        self.prompts.append(json.dumps(messages, ensure_ascii=False))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("dropped")
        return "Final Answer: Noted."

    async def acall(self, messages: Any, *args: Any, **options: Any) -> str:
        """Answer like `call`."""
        return self.call(messages)


def make_agent(name: str, model: Model) -> MemoryAgent:
    """Return an agent with the memory of this user."""
    return MemoryAgent(
        role="assistant",
        goal="Help the user.",
        backstory="You are helpful.",
        llm=model,
        user_memory=Memory(name),
        max_retry_limit=2,
    )


def log_of(agent: MemoryAgent) -> list[list[str | None]]:
    """Return what the user's log has."""
    return [[entry.role, entry.content] for entry in agent.user_memory.user.entries.list()]


def briefs_of(model: Model) -> list[int]:
    """Return how many briefs are in each prompt."""
    return [prompt.count(INSTRUCTIONS[:40]) for prompt in model.prompts]


def repeat_task() -> dict[str, Any]:
    """Do one task twice, the first time with two retries; between them, something is said."""
    model = Model(model=MODEL, failures=2)
    agent = make_agent("crew", model)
    task = Task(description="What do I like?", expected_output="A sentence.", agent=agent)
    crew = Crew(agents=[agent], tasks=[task])
    crew.kickoff()
    first = briefs_of(model)
    agent.user_memory.user.add("I like green tea.")
    crew.kickoff()
    return {"log": log_of(agent), "briefs": first, "second": model.prompts[-1]}


def refuse_once() -> dict[str, Any]:
    """Do a task whose first answer is refused by a guardrail."""
    refusals = [(False, "Say more."), (True, "Noted.")]
    model = Model(model=MODEL)
    agent = make_agent("guarded", model)
    task = Task(
        description="What do I like?",
        expected_output="A sentence.",
        agent=agent,
        guardrail=lambda output: refusals.pop(0),
    )
    Crew(agents=[agent], tasks=[task]).kickoff()
    return {"log": log_of(agent), "briefs": briefs_of(model)}


def ask_twice() -> dict[str, Any]:
    """Ask an agent the same in two turns, the second time in an event loop."""
    model = Model(model=MODEL)
    agent = make_agent("alone", model)
    agent.kickoff("What do I like?")
    agent.user_memory.user.add("I like green tea.")

    async def ask() -> None:
        await agent.kickoff("What do I like?")

    asyncio.run(ask())
    return {"log": log_of(agent), "briefs": briefs_of(model), "second": model.prompts[-1]}


shown = {"task": repeat_task(), "guardrail": refuse_once(), "question": ask_twice()}
print(json.dumps(shown))
