"""A chat with an agent of Google's ADK that has a memory.

`python -m userascode_agents.examples.google_adk_agent ada` needs `pip install
'userascode-agents[google-adk]'`, and in the environment UAC_URL, UAC_KEY and GOOGLE_API_KEY.
"""

import asyncio
import os
import sys

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types

from userascode_agents.google_adk import TOOLS, UserMemoryPlugin

agent = LlmAgent(
    name="assistant",
    model=Gemini(model=os.environ.get("MODEL", "gemini-2.5-flash")),
    instruction="You are a helpful assistant.",
    tools=TOOLS,
)
app = App(name="chat", root_agent=agent, plugins=[UserMemoryPlugin()])


async def main(user_id: str) -> None:
    """Answer each line of the input."""
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name=app.name, user_id=user_id)
    for line in sys.stdin:
        message = types.Content(role="user", parts=[types.Part(text=line.strip())])
        async for event in runner.run_async(
            user_id=user_id, session_id=session.id, new_message=message
        ):
            if event.is_final_response() and event.content:
                print("".join(part.text or "" for part in event.content.parts or ()), flush=True)


asyncio.run(main(sys.argv[1]))
