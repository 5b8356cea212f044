"""What ADK's memory service does with a session, run in an environment that has ADK."""

import asyncio
import json
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types
from userascode_agents.google_adk import UserMemoryService


def event(author: str, text: str) -> Event:
    """Return what somebody said."""
    return Event(author=author, content=types.Content(parts=[types.Part(text=text)]))


async def main() -> dict[str, Any]:
    """Add a session twice, and search it."""
    events = [
        event("user", "My dentist is Dr. Brown."),
        event("assistant", "Noted."),
        event("user", "I like tea."),
        event("assistant", "Noted."),
    ]
    session = Session(id="s", app_name="chat", user_id="alan", events=events)
    service = UserMemoryService()
    for _ in range(2):
        await service.add_session_to_memory(session)
    found = await service.search_memory(app_name="chat", user_id="alan", query="dentist")
    first = found.memories[0]
    return {"author": first.author, "text": first.content.parts[0].text}


print(json.dumps(asyncio.run(main())))
